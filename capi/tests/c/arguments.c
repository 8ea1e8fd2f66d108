/* Wrong arguments of all kinds give one clear error, and change nothing. */
#include "check.h"

#include <stddef.h>
#include <sys/stat.h>

static const char *const SPEC = "age-partitioned last=1000";

/* What does not open. */
static void openings(const char *directory) {
    struct ebbtide_error *error = NULL;
    char path[4096], missing[4096];
    snprintf(path, sizeof path, "%s", at(directory, "seen"));
    snprintf(missing, sizeof missing, "%s", at(directory, "missing"));
    CHECK(ebbtide_open(NULL, SPEC, NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the path is NULL");
    CHECK(ebbtide_open(path, NULL, NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the spec is NULL");
    CHECK(ebbtide_create(NULL, SPEC, NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_create(path, NULL, NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_open_existing(NULL, NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_reader_open(NULL, NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_open(path, "bloom \xff", NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "not UTF-8");
    CHECK(ebbtide_open(path, SPEC, "\xff", &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "not UTF-8");
    CHECK(ebbtide_open_existing(missing, NULL, &error) == NULL);
    CHECK(strcmp(ebbtide_error_path(error), missing) == 0);
    CHECK_CODE(error, EBBTIDE_NOT_A_FILTER);
    CHECK(ebbtide_open(path, "bloom", NULL, &error) == NULL && ebbtide_error_path(error) == NULL);
    CHECK_CODE(error, EBBTIDE_PARAMETER);
    const char *const specs[] = {"", "no-such-kind last=5", "bloom", "bloom capacity",
                                 "bloom capacity=many", "time-limited window=10"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        CHECK(ebbtide_open(path, specs[i], NULL, &error) == NULL);
        CHECK_CODE(error, EBBTIDE_PARAMETER);
    }
    const char *const options[] = {"durability", "durability=sometimes", "colour=red",
                                   "stripes=1 stripes=1", "mode=rw"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        CHECK(ebbtide_open(path, SPEC, options[i], &error) == NULL);
        CHECK_CODE(error, EBBTIDE_PARAMETER);
        CHECK(ebbtide_open_existing(path, options[i], &error) == NULL);
        CHECK_CODE(error, EBBTIDE_PARAMETER);
        CHECK(ebbtide_reader_open(path, options[i], &error) == NULL);
        CHECK_CODE(error, EBBTIDE_PARAMETER);
    }
    CHECK(ebbtide_open_existing(missing, NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_NOT_A_FILTER, "missing");
    CHECK(ebbtide_reader_open(missing, NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_NOT_A_FILTER);
    CHECK(ebbtide_open("/dev/null/seen", SPEC, NULL, &error) == NULL);
    CHECK(error != NULL);
    ebbtide_error_free(error);
    error = NULL;
    struct stat there;
    CHECK(stat(path, &there) == -1 && stat(missing, &there) == -1);

    struct ebbtide_filter *seen = ebbtide_create(path, SPEC, NULL, &error);
    CHECK_CODE(error, 0);
    CHECK(ebbtide_create(path, SPEC, NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_EXISTS);
    CHECK(ebbtide_open(path, "bloom capacity=5", NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_MISMATCH);
    CHECK(ebbtide_open(path, "age-partitioned last=1001", NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_MISMATCH, "1001");
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

/* NULL in the place of each pointer. */
static void pointers(struct ebbtide_filter *seen) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_key key = {"a", 1}, wrong[] = {{"a", 1}, {NULL, 1}};
    uint8_t answers[2] = {77, 77};
    double count = 77;
    CHECK(ebbtide_insert(NULL, "a", 1, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the filter is NULL");
    CHECK(ebbtide_contains(NULL, "a", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_check_and_insert(NULL, "a", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_remove(NULL, "a", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_age(NULL, "a", 1, NULL, NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_seen_within(NULL, "a", 1, 5, EBBTIDE_ITEMS, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_estimate(NULL, "a", 1, &count, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_insert_all(NULL, &key, 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_contains_all(NULL, &key, 1, answers, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_check_and_insert_all(NULL, &key, 1, answers, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_sync(NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_checkpoint(NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_digest(NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_stat(NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_clear(NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_backup(NULL, "backup", &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_backup(seen, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the path is NULL");
    CHECK(ebbtide_restore(NULL, "restored", &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_restore("backup", NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_plan(NULL, NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the spec is NULL");
    CHECK(ebbtide_plan("bloom capacity=5", "\xff", &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "not UTF-8");
    CHECK(ebbtide_error_code(NULL) == 0);
    CHECK(strcmp(ebbtide_error_message(NULL), "no error") == 0);
    CHECK(ebbtide_error_path(NULL) == NULL);
    ebbtide_error_free(NULL);

    CHECK(ebbtide_insert(seen, NULL, 1, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the key");
    CHECK(ebbtide_contains(seen, "a", SIZE_MAX, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the key");
    CHECK(ebbtide_estimate(seen, "a", 1, NULL, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the count");
    CHECK(ebbtide_insert_all(seen, NULL, 1, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the keys");
    CHECK(ebbtide_insert_all(seen, &key, SIZE_MAX, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the keys");
    const char *unaligned = (const char *)wrong + 1;
    CHECK(ebbtide_insert_all(seen, (const struct ebbtide_key *)(const void *)unaligned, 1, NULL,
                             &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "aligned");
    CHECK(ebbtide_contains_all(seen, &key, 1, NULL, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the array of answers");
    CHECK(ebbtide_check_and_insert_all(seen, &key, 1, NULL, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the array of answers");
    CHECK(ebbtide_check_and_insert_all(seen, wrong, 2, answers, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the key");
    CHECK(answers[0] == 77 && answers[1] == 77);
    CHECK(ebbtide_seen_within(seen, "a", 1, 5, 2, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "unit");
    /* Nobody wants to see the error. */
    CHECK(ebbtide_insert(seen, NULL, 1, NULL, NULL) == -1);
    CHECK(ebbtide_open(NULL, NULL, NULL, NULL) == NULL);
    CHECK(ebbtide_contains(seen, "a", 1, NULL, &error) == 0);
}

/* A call, larger than this version's. */
struct later {
    struct ebbtide_call call;
    uint64_t more;
};

/* Settings of calls that do not exist, or contradict each other. */
static void calls(struct ebbtide_filter *seen) {
    struct ebbtide_error *error = NULL;
    const struct ebbtide_call none = EBBTIDE_CALL_INIT;
    struct ebbtide_call call = none;
    const size_t first = offsetof(struct ebbtide_call, wait_us);
    const size_t sizes[] = {0, 8, first - 1, 5000, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        call.size = sizes[i];
        CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == -1);
        CHECK_ERROR(error, EBBTIDE_ARGUMENT, "size of the call");
    }
    call = none;
    call.flags = 16;
    CHECK(ebbtide_contains(seen, "a", 1, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "0x10");
    call = none;
    call.durability = 4;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "durability of the call");
    call.durability = EBBTIDE_DURABILITY_INTERVAL;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "interval_us of the call");
    call.interval_us = 86400000001;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "86400000001");
    call.interval_us = 86400000000;
    CHECK(ebbtide_insert(seen, "a day", 5, &call, &error) == 1);
    call = none;
    call.interval_us = 5;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "interval_us of the call is set");
    call = none;
    call.time_us = 5;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "EBBTIDE_WITH_TIME");
    call = none;
    call.weight = 5;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "EBBTIDE_WITH_WEIGHT");
    call = none;
    call.flags = EBBTIDE_WITHOUT_WAITING;
    call.wait_us = 5;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "wait_us of the call is set");
    call = none;
    call.wait_us = UINT64_MAX;
    CHECK(ebbtide_insert(seen, "patient", 7, &call, &error) == 1);
    /* A program built with the first version of the structure. */
    call = none;
    call.size = offsetof(struct ebbtide_call, wait_us);
    call.wait_us = 5;
    call.flags = EBBTIDE_WITHOUT_WAITING;
    CHECK(ebbtide_contains(seen, "patient", 7, &call, &error) == 1);
    call = none;
    call.weight = 5;
    /* Nor is anything written for an array of keys. */
    const struct ebbtide_key key = {"a", 1};
    uint8_t answer = 77;
    CHECK(ebbtide_contains_all(seen, &key, 1, &answer, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "EBBTIDE_WITH_WEIGHT");
    CHECK(ebbtide_check_and_insert_all(seen, &key, 1, &answer, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "EBBTIDE_WITH_WEIGHT");
    CHECK(answer == 77);
    call.flags = EBBTIDE_WITH_WEIGHT;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == -1);
    CHECK(error != NULL && ebbtide_error_code(error) < EBBTIDE_ARGUMENT);
    ebbtide_error_free(error);
    error = NULL;
    CHECK(ebbtide_contains(seen, "a", 1, NULL, &error) == 0);

    /* A program built with a later version: settings of its own may only be 0. */
    struct later later = {none, 0};
    later.call.size = sizeof later;
    CHECK(ebbtide_contains(seen, "a", 1, &later.call, &error) == 0);
    later.more = 1;
    CHECK(ebbtide_contains(seen, "a", 1, &later.call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "later version");
}

static void batches(struct ebbtide_filter *seen) {
    struct ebbtide_error *error = NULL;
    CHECK(ebbtide_batch_new(NULL, NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the filter is NULL");
    CHECK(ebbtide_position(NULL, 0, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the filter is NULL");
    CHECK(ebbtide_batch_insert(NULL, "a", 1, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the batch is NULL");
    CHECK(ebbtide_batch_check_and_insert(NULL, "a", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_batch_set_position(NULL, 0, 0, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_batch_commit(NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_batch_clear(NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    struct ebbtide_call wrong = EBBTIDE_CALL_INIT;
    wrong.flags = 1024;
    CHECK(ebbtide_batch_new(seen, &wrong, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "0x400");
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, NULL, &error);
    CHECK_CODE(error, 0);
    CHECK(ebbtide_batch_insert(batch, NULL, 1, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "pointer to its bytes");
    CHECK(ebbtide_batch_insert(batch, "a", 1, &wrong, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "0x400");
    CHECK(ebbtide_batch_check_and_insert(batch, "a", 1, &wrong, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    for (uint64_t source = 0; source < 256; source++) {
        CHECK(ebbtide_batch_set_position(batch, source, 0, &error) == 0);
    }
    CHECK(ebbtide_batch_set_position(batch, 256, 0, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_PARAMETER, "256 sources");
    ebbtide_batch_free(batch);
}

/* Operations that the kind or a reader does not have. */
static void unsupported(struct ebbtide_filter *seen, const char *path) {
    struct ebbtide_error *error = NULL;
    double count = 77;
    CHECK(ebbtide_remove(seen, "a", 1, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_UNSUPPORTED, "remove");
    CHECK(ebbtide_estimate(seen, "a", 1, &count, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_UNSUPPORTED, "estimate");
    CHECK(count == 77);
    struct ebbtide_filter *reader = ebbtide_reader_open(path, NULL, &error);
    CHECK_CODE(error, 0);
    struct ebbtide_key key = {"a", 1};
    uint8_t answer = 77;
    CHECK(ebbtide_insert(reader, "a", 1, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_UNSUPPORTED, "ebbtide_open_existing");
    CHECK(ebbtide_check_and_insert(reader, "a", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_UNSUPPORTED);
    CHECK(ebbtide_remove(reader, "a", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_UNSUPPORTED);
    CHECK(ebbtide_insert_all(reader, &key, 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_UNSUPPORTED);
    CHECK(ebbtide_check_and_insert_all(reader, &key, 1, &answer, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_UNSUPPORTED);
    CHECK(answer == EBBTIDE_NO_ANSWER);
    CHECK(ebbtide_sync(reader, &error) == -1);
    CHECK_CODE(error, EBBTIDE_UNSUPPORTED);
    CHECK(ebbtide_checkpoint(reader, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_UNSUPPORTED);
    CHECK(ebbtide_close(reader, &error) == 0);
    CHECK_CODE(error, 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    openings(arguments[1]);
    struct ebbtide_error *error = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s", at(arguments[1], "other"));
    struct ebbtide_filter *seen = ebbtide_create(path, SPEC, NULL, &error);
    CHECK_CODE(error, 0);
    pointers(seen);
    calls(seen);
    batches(seen);
    unsupported(seen, path);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
    puts("passed");
    return 0;
}
