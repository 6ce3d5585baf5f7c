/* Counters: shared by processes and threads, and told in Prometheus's text format. */
#include "common/counters.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

enum { REQUESTS, OPEN, PLAIN, SECONDS, BOOT };

static const struct counter_family families[] = {
    {"requests_total", "Requests\nby \\ method", COUNTER_TOTAL, "handler,method",
     "/a/{id}|/q\"uote|/back\\slash,GET|POST", NULL},
    {"streams_open", "Followers", COUNTER_GAUGE, "kind", "x|y", NULL},
    {"plain_total", "No labels", COUNTER_TOTAL, NULL, NULL, NULL},
    {"request_seconds", "Time", COUNTER_HISTOGRAM, "handler", "a|b", "0.1 0.5 1"},
    {"boot_seconds", "Boot", COUNTER_HISTOGRAM, NULL, NULL, "1"},
};

static struct buffer text;

static void open_families(void)
{
    counters_open(families, COUNT(families));
}

static void forget_text(void)
{
    buffer_done(&text);
}

static const char *read_text(void)
{
    text.length = 0;
    counters_text(&text);
    return text.data;
}

static bool tells(const char *line)
{
    const char *at = strstr(read_text(), line);

    return at && (at == text.data || at[-1] == '\n') && at[strlen(line)] == '\n';
}

START_TEST(nothing_touched_tells_families_without_labels_only)
{
    ck_assert_str_eq(read_text(), "# HELP requests_total Requests\\nby \\\\ method\n"
                                  "# TYPE requests_total counter\n"
                                  "# HELP streams_open Followers\n"
                                  "# TYPE streams_open gauge\n"
                                  "# HELP plain_total No labels\n"
                                  "# TYPE plain_total counter\n"
                                  "plain_total 0\n"
                                  "# HELP request_seconds Time\n"
                                  "# TYPE request_seconds histogram\n"
                                  "# HELP boot_seconds Boot\n"
                                  "# TYPE boot_seconds histogram\n"
                                  "boot_seconds_bucket{le=\"1\"} 0\n"
                                  "boot_seconds_bucket{le=\"+Inf\"} 0\n"
                                  "boot_seconds_sum 0\n"
                                  "boot_seconds_count 0\n");
}
END_TEST

static const struct {
    int labels[2];
    const char *line;
} samples[] = {
    {{0, 0}, "requests_total{handler=\"/a/{id}\",method=\"GET\"} 3"},
    {{0, 1}, "requests_total{handler=\"/a/{id}\",method=\"POST\"} 3"},
    {{1, 0}, "requests_total{handler=\"/q\\\"uote\",method=\"GET\"} 3"},
    {{2, 1}, "requests_total{handler=\"/back\\\\slash\",method=\"POST\"} 3"},
};

START_TEST(a_sample_is_named_by_its_labels)
{
    counter_add(REQUESTS, samples[_i].labels, 1);
    counter_add(REQUESTS, samples[_i].labels, 2);
    ck_assert(tells(samples[_i].line));
    ck_assert_ptr_null(strstr(strstr(text.data, "requests_total{") + 1, "requests_total{"));
}
END_TEST

static const int outside[][2] = {{-1, 0}, {0, -1}, {3, 0}, {0, 2}, {1 << 30, 1 << 30}};

START_TEST(labels_out_of_range_are_dropped)
{
    counter_add(REQUESTS, outside[_i], 1);
    ck_assert_ptr_null(strstr(read_text(), "requests_total{"));
}
END_TEST

START_TEST(what_does_not_fit_its_family_is_dropped)
{
    counter_add(99, NULL, 1);
    counter_observe(99, NULL, 1);
    counter_add(REQUESTS, NULL, 1);
    counter_add(PLAIN, NULL, -1);
    counter_add(BOOT, NULL, 1);
    counter_observe(PLAIN, NULL, 1);
    counter_observe(BOOT, NULL, NAN);
    counter_observe(BOOT, NULL, INFINITY);
    ck_assert(tells("plain_total 0"));
    ck_assert(tells("boot_seconds_count 0"));
}
END_TEST

START_TEST(a_gauge_goes_down_and_stays_to_be_seen)
{
    const int y[] = {1};

    counter_add(OPEN, y, 2);
    counter_add(OPEN, y, -1);
    ck_assert(tells("streams_open{kind=\"y\"} 1"));
    counter_add(OPEN, y, -1);
    ck_assert(tells("streams_open{kind=\"y\"} 0"));
}
END_TEST

START_TEST(a_histogram_counts_upwards)
{
    static const double values[] = {0.05, 0.1, 0.25, 1, 7};
    const int b[] = {1};

    for (size_t i = 0; i < COUNT(values); i++)
        counter_observe(SECONDS, b, values[i]);
    ck_assert(tells("request_seconds_bucket{handler=\"b\",le=\"0.1\"} 2"));
    ck_assert(tells("request_seconds_bucket{handler=\"b\",le=\"0.5\"} 3"));
    ck_assert(tells("request_seconds_bucket{handler=\"b\",le=\"1\"} 4"));
    ck_assert(tells("request_seconds_bucket{handler=\"b\",le=\"+Inf\"} 5"));
    ck_assert(tells("request_seconds_count{handler=\"b\"} 5"));
    ck_assert_ptr_nonnull(strstr(text.data, "request_seconds_sum{handler=\"b\"} 8.4"));
    ck_assert_ptr_null(strstr(text.data, "handler=\"a\""));
}
END_TEST

START_TEST(a_label_has_an_index)
{
    ck_assert_int_eq(counter_label(REQUESTS, 0, "/q\"uote"), 1);
    ck_assert_int_eq(counter_label(REQUESTS, 1, "POST"), 1);
    ck_assert_int_eq(counter_label(REQUESTS, 1, "PUT"), -1);
    ck_assert_int_eq(counter_label(REQUESTS, 2, "GET"), -1);
    ck_assert_int_eq(counter_label(PLAIN, 0, "GET"), -1);
    ck_assert_int_eq(counter_label(99, 0, "GET"), -1);
    ck_assert_int_eq(counter_label(REQUESTS, 1, NULL), -1);
}
END_TEST

enum { ROUNDS = 20000 };

static void *count_many(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        counter_add(PLAIN, NULL, 1);
        counter_observe(BOOT, NULL, 0.5);
    }
    return unused;
}

START_TEST(processes_and_threads_lose_nothing)
{
    pthread_t threads[2];
    int status;

    for (int i = 0; i < 2; i++) {
        pid_t child = fork();

        if (child == 0) {
            count_many(NULL);
            _exit(0);
        }
        ck_assert_int_gt(child, 0);
    }
    for (size_t i = 0; i < COUNT(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, count_many, NULL), 0);
    for (size_t i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        ck_assert_int_gt(wait(&status), 0);
    ck_assert(tells("plain_total 80000"));
    ck_assert(tells("boot_seconds_count 80000"));
    ck_assert(tells("boot_seconds_sum 40000"));
}
END_TEST

START_TEST(a_dead_process_leaves_no_share_of_a_gauge)
{
    pid_t child = fork();
    const int x = 0;
    int status;

    if (child == 0) {
        counters_enter();
        counter_add(OPEN, &x, 7);
        counter_add(PLAIN, NULL, 3);
        _exit(0);
    }
    counter_add(OPEN, &x, 2);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(tells("streams_open{kind=\"x\"} 9"));
    counters_leave(child);
    ck_assert(tells("streams_open{kind=\"x\"} 2"));
    ck_assert(tells("plain_total 3"));
}
END_TEST

START_TEST(before_it_is_opened_nothing_is_counted)
{
    counter_add(PLAIN, NULL, 1);
    counter_observe(BOOT, NULL, 1);
    ck_assert_int_eq(counter_label(REQUESTS, 1, "POST"), -1);
    buffer_text(&text, "");
    ck_assert_str_eq(read_text(), "");
    forget_text();
}
END_TEST

static const struct counter_family broken[] = {
    {"x", "", COUNTER_TOTAL, "a,b", "1|2", NULL},
    {"x", "", COUNTER_TOTAL, NULL, "1|2", NULL},
    {"x", "", COUNTER_TOTAL, "a,b,c,d,e", "1,1,1,1,1", NULL},
    {"x", "", COUNTER_HISTOGRAM, NULL, NULL, NULL},
    {"x", "", COUNTER_HISTOGRAM, NULL, NULL, "1 0.5"},
    {"x", "", COUNTER_HISTOGRAM, NULL, NULL, "1 x"},
    {"x", "", COUNTER_HISTOGRAM, NULL, NULL, "1 inf"},
};

START_TEST(a_broken_table_stops_the_start)
{
    counters_open(&broken[_i], 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("counters");
    TCase *tests = unit_case(suite, "counters");
    TCase *without = unit_case(suite, "not opened");

    tcase_add_test(without, before_it_is_opened_nothing_is_counted);
    tcase_add_loop_test_raise_signal(without, a_broken_table_stops_the_start, SIGABRT, 0,
                                     (int)COUNT(broken));
    tcase_add_checked_fixture(tests, open_families, forget_text);
    tcase_add_test(tests, nothing_touched_tells_families_without_labels_only);
    unit_table(tests, a_sample_is_named_by_its_labels, samples);
    unit_table(tests, labels_out_of_range_are_dropped, outside);
    tcase_add_test(tests, what_does_not_fit_its_family_is_dropped);
    tcase_add_test(tests, a_gauge_goes_down_and_stays_to_be_seen);
    tcase_add_test(tests, a_histogram_counts_upwards);
    tcase_add_test(tests, a_label_has_an_index);
    tcase_add_test(tests, processes_and_threads_lose_nothing);
    tcase_add_test(tests, a_dead_process_leaves_no_share_of_a_gauge);
    return unit_run(suite);
}
