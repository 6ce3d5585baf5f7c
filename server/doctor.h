/* What this machine lacks for sandboxes: sandboxctl doctor. */
#ifndef SERVER_DOCTOR_H
#define SERVER_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* GOOD; MISSING: sandboxes need it; ADVICE: something is not there without it, or less safe. */
enum doctor_finding { DOCTOR_GOOD, DOCTOR_MISSING, DOCTOR_ADVICE };

/* What is looked at. Texts may be "", which means that it is not known. */
struct doctor {
    const char *root;     /* before the paths of files that are only read: "" for this machine */
    const char *state;    /* SUPERVISOR_STATE; its file system is tried */
    const char *socket;   /* the supervisor's */
    const char *database; /* URL */
    int64_t id_base, sandboxes_max;
};

/* What one row found, and what it has to say about it. */
struct doctor_row {
    const char *name;
    const char *cure; /* in a line; NULL: none is needed */
    enum doctor_finding finding;
    char detail[240];
};

size_t doctor_count(void);
/* Examine one thing. Nothing stays of what is tried. */
void doctor_look(const struct doctor *doctor, size_t index, struct doctor_row *row);
/* Examine all and print it: a line each, or a JSON array. Returns how many needed things are
 * missing. */
int doctor_examine(const struct doctor *doctor, bool json, FILE *out);

#endif
