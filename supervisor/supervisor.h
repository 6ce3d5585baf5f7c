/* What every part of the supervisor may know: its settings and where things lie. */
#ifndef SUPERVISOR_SUPERVISOR_H
#define SUPERVISOR_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/settings.h"

struct supervisor_settings {
#define SETTING(type, member, variable, fallback, min, max, about) SETTING_CTYPE_##type member;
#include "supervisor/settings.def"
#undef SETTING
};

extern struct supervisor_settings settings;

/* Ids from ID_BASE on: one range for the owners of the sandboxes' user namespaces, an id each that
 * no process of a sandbox can have, then a range for every slot. */
enum { ID_RANGE = 65536, SANDBOX_ID_LENGTH = 36, BOOT_LENGTH = 36 };

#define NFT_PROGRAM "/usr/sbin/nft" /* of the package nftables */
#define WORKSPACE_PATH "/workspace"

#endif
