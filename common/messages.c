/* Field tables of the messages: see messages.h. */
#include "common/messages.h"

#define ID(owner)                                                                 \
    {                                                                             \
        TEXT(owner, sandbox), .min = 36, .max = 36, .pattern = SANDBOX_ID_PATTERN \
    }
#define PATH(owner)                              \
    {                                            \
        TEXT(owner, path), .min = 1, .max = 4095 \
    }

static const struct field nothing_fields[] = {};
SCHEMA(nothing);

static const struct field create_fields[] = {
    ID(create),
    {NUMBER(create, disk_bytes), .max = INT64_C(1) << 44},
    {NUMBER(create, disk_inodes), .max = 1000000000},
    {TEXT(create, snapshot), .min = 36, .max = 36, .pattern = SANDBOX_ID_PATTERN, .nullable = true},
};
SCHEMA(create);

static const struct field start_fields[] = {
    ID(start),
    {TEXT(start, image), .min = 1, .max = 128, .pattern = IMAGE_NAME_PATTERN},
    {TEXT(start, hostname), .min = 1, .max = 63, .pattern = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"},
    {NUMBER(start, memory_bytes), .min = 16 << 20, .max = INT64_C(1) << 42},
    {NUMBER(start, pids), .min = 8, .max = 32768},
    {NUMBER(start, cpu_percent), .min = 1, .max = 25600},
    {NUMBER(start, tmp_bytes), .min = 1 << 20, .max = INT64_C(1) << 40},
    {TEXT(start, network), .max = 6, .pattern = "none|egress", .nullable = true},
    {NUMBER(start, swap_bytes), .max = INT64_C(1) << 42},
    {NUMBER(start, cpu_weight), .max = 10000},
    {NUMBER(start, open_files), .max = 1 << 20},
    {NUMBER(start, nice), .max = 19},
    {NUMBER(start, oom_score), .max = 1000},
    {FLAG(start, oom_group)},
};
SCHEMA(start);

static const struct field exec_fields[] = {
    ID(exec),
    {TEXTS(exec, argv), .min = 1, .max = 256},
    {TEXTS(exec, environment), .max = 1024},
    {TEXT(exec, directory), .min = 1, .max = 4095},
    {NUMBER(exec, timeout_ms), .min = 1, .max = 3600 * 1000},
    {NUMBER(exec, uid), .max = 65533},
    {TEXTS(exec, defaults), .max = 64},
};
SCHEMA(exec);

static const struct field exec_result_fields[] = {
    {NUMBER(exec_result, exit_code), .max = 255},
    {NUMBER(exec_result, signal), .max = 64},
    {FLAG(exec_result, timed_out)},
    {FLAG(exec_result, oom_killed)},
    {NUMBER(exec_result, duration_ms)},
};
SCHEMA(exec_result);

static const struct field stop_fields[] = {ID(stop)};
SCHEMA(stop);

static const struct field destroy_fields[] = {ID(destroy)};
SCHEMA(destroy);

static const struct field status_fields[] = {ID(status)};
SCHEMA(status);

static const struct field sandbox_status_fields[] = {
    {NUMBER(sandbox_status, state), .min = 1, .max = 8},
    {TEXT(sandbox_status, boot), .max = 64, .nullable = true},
};
SCHEMA(sandbox_status);

static const struct field list_fields[] = {ID(list)};
SCHEMA(list);

static const struct field sandbox_entry_fields[] = {
    ID(sandbox_entry),
    {NUMBER(sandbox_entry, state), .min = 1, .max = 8},
    {NUMBER(sandbox_entry, image)},
};
SCHEMA(sandbox_entry);

static const struct field file_list_fields[] = {ID(file_list), PATH(file_list)};
SCHEMA(file_list);

static const struct field file_entry_fields[] = {
    {TEXT(file_entry, name), .min = 1, .max = 255},
    {NUMBER(file_entry, mode)},
    {NUMBER(file_entry, size)},
    {NUMBER(file_entry, uid)},
    {NUMBER(file_entry, gid)},
    {NUMBER(file_entry, modified_ns)},
};
SCHEMA(file_entry);

static const struct field file_open_fields[] = {ID(file_open), PATH(file_open)};
SCHEMA(file_open);

static const struct field file_info_fields[] = {
    {NUMBER(file_info, size)}, {NUMBER(file_info, mode)}, {NUMBER(file_info, modified_ns)}};
SCHEMA(file_info);

static const struct field file_create_fields[] = {
    ID(file_create), PATH(file_create), {NUMBER(file_create, mode), .max = 0777}};
SCHEMA(file_create);

static const struct field file_commit_fields[] = {ID(file_commit)};
SCHEMA(file_commit);

static const struct field file_remove_fields[] = {
    ID(file_remove), PATH(file_remove), {FLAG(file_remove, recursive)}};
SCHEMA(file_remove);

static const struct field directory_make_fields[] = {ID(directory_make), PATH(directory_make)};
SCHEMA(directory_make);

#define SNAPSHOT(owner)                                                            \
    {                                                                              \
        TEXT(owner, snapshot), .min = 36, .max = 36, .pattern = SANDBOX_ID_PATTERN \
    }

static const struct field snapshot_make_fields[] = {ID(snapshot_make), SNAPSHOT(snapshot_make)};
SCHEMA(snapshot_make);

static const struct field snapshot_remove_fields[] = {ID(snapshot_remove),
                                                      SNAPSHOT(snapshot_remove)};
SCHEMA(snapshot_remove);

static const struct field snapshot_list_fields[] = {ID(snapshot_list)};
SCHEMA(snapshot_list);

static const struct field snapshot_entry_fields[] = {
    SNAPSHOT(snapshot_entry),
    {TEXT(snapshot_entry, sandbox), .max = 36, .nullable = true},
    {NUMBER(snapshot_entry, created_ns)},
    {NUMBER(snapshot_entry, size_bytes)},
    {NUMBER(snapshot_entry, content_bytes)},
    {NUMBER(snapshot_entry, entries)},
    {NUMBER(snapshot_entry, disk_bytes)},
    {NUMBER(snapshot_entry, disk_inodes)},
    {FLAG(snapshot_entry, damaged)},
};
SCHEMA(snapshot_entry);

static const struct field file_stat_fields[] = {ID(file_stat), PATH(file_stat)};
SCHEMA(file_stat);

static const struct field file_move_fields[] = {
    ID(file_move), PATH(file_move), {TEXT(file_move, to), .min = 1, .max = 4095}};
SCHEMA(file_move);

static const struct field file_mode_fields[] = {
    ID(file_mode), PATH(file_mode), {NUMBER(file_mode, mode), .max = 0777}};
SCHEMA(file_mode);

static const struct field resources_fields[] = {ID(resources)};
SCHEMA(resources);

static const struct field sandbox_usage_fields[] = {
    {NUMBER(sandbox_usage, disk_bytes)},         {NUMBER(sandbox_usage, disk_bytes_limit)},
    {NUMBER(sandbox_usage, disk_inodes)},        {NUMBER(sandbox_usage, disk_inodes_limit)},
    {NUMBER(sandbox_usage, memory_bytes)},       {NUMBER(sandbox_usage, memory_peak_bytes)},
    {NUMBER(sandbox_usage, memory_limit_bytes)}, {NUMBER(sandbox_usage, pids)},
    {NUMBER(sandbox_usage, pids_limit)},         {NUMBER(sandbox_usage, cpu_us)},
    {NUMBER(sandbox_usage, oom_kills)},
};
SCHEMA(sandbox_usage);

static const struct field port_open_fields[] = {
    ID(port_open),
    {NUMBER(port_open, port), .min = 1, .max = 65535},
    {NUMBER(port_open, family), .min = 4, .max = 6},
};
SCHEMA(port_open);

static const struct field statistics_fields[] = {ID(statistics)};
SCHEMA(statistics);

static const struct field image_commit_fields[] = {
    ID(image_commit),
    {TEXT(image_commit, image), .min = 1, .max = 64, .pattern = IMAGE_NAME_PATTERN},
};
SCHEMA(image_commit);
