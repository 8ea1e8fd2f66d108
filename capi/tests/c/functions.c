/* Every function answers as the header says. */
#include "check.h"

#include <pthread.h>

static const uint64_t START = 1700000000000000;
static const uint64_t SECOND = 1000000;

static struct ebbtide_call at_second(uint64_t second) {
    struct ebbtide_call call = EBBTIDE_CALL_INIT;
    call.flags = EBBTIDE_WITH_TIME;
    call.time_us = START + second * SECOND;
    return call;
}

static void singles(const char *directory) {
    struct ebbtide_error *error = NULL;
    const char *path = at(directory, "singles");
    struct ebbtide_filter *seen = ebbtide_open(path, "age-partitioned last=10k fpr=0.0001",
                                               "durability=never", &error);
    CHECK_CODE(error, 0);
    CHECK(seen != NULL);
    CHECK(ebbtide_contains(seen, "a", 1, NULL, &error) == 0);
    CHECK(ebbtide_insert(seen, "a", 1, NULL, &error) == 1);
    CHECK(ebbtide_contains(seen, "a", 1, NULL, &error) == 1);
    CHECK(ebbtide_check_and_insert(seen, "a", 1, NULL, &error) == EBBTIDE_PRESENT);
    CHECK(ebbtide_check_and_insert(seen, "b", 1, NULL, &error) == EBBTIDE_NEW);
    /* Keys are bytes: a NUL is one of them, and none at all are a key too. */
    CHECK(ebbtide_check_and_insert(seen, "a\0b", 3, NULL, &error) == EBBTIDE_NEW);
    CHECK(ebbtide_check_and_insert(seen, "", 0, NULL, &error) == EBBTIDE_NEW);
    CHECK(ebbtide_contains(seen, NULL, 0, NULL, &error) == 1);
    uint64_t age = 77;
    uint32_t unit = 77;
    CHECK(ebbtide_age(seen, "never", 5, &age, &unit, NULL, &error) == 0);
    CHECK(age == 77 && unit == 77);
    CHECK(ebbtide_age(seen, "a", 1, &age, &unit, NULL, &error) == 1);
    CHECK(age <= 4 && unit == EBBTIDE_ITEMS);
    CHECK(ebbtide_age(seen, "a", 1, NULL, NULL, NULL, &error) == 1);
    CHECK(ebbtide_seen_within(seen, "a", 1, 5000, EBBTIDE_ITEMS, NULL, &error) == 1);
    CHECK(ebbtide_seen_within(seen, "never", 5, 5000, EBBTIDE_ITEMS, NULL, &error) == 0);
    double keys = 0, standard_error = -1;
    uint64_t reach = 0;
    CHECK(ebbtide_distinct(seen, &keys, &standard_error, &reach, NULL, &error) == 0);
    CHECK(keys > 2.5 && keys < 5.5 && standard_error >= 0 && standard_error < 1 && reach >= 3);
    CHECK(ebbtide_distinct(seen, NULL, NULL, NULL, NULL, &error) == 0);
    double lately = 0;
    CHECK(ebbtide_distinct_within(seen, 1, EBBTIDE_ITEMS, &lately, NULL, &reach, NULL, &error) ==
          0);
    CHECK(lately > 0.5 && lately <= keys && reach >= 1);
    CHECK(ebbtide_distinct_within(seen, 1, 7, NULL, NULL, NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);

    /* The state is on the disk. */
    seen = ebbtide_open_existing(path, NULL, &error);
    CHECK(seen != NULL);
    CHECK(ebbtide_contains(seen, "a\0b", 3, NULL, &error) == 1);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

static void times(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = ebbtide_create(at(directory, "times"),
                                                 "time-limited window=60s fpr=0.0001", "", &error);
    CHECK_CODE(error, 0);
    struct ebbtide_call call = at_second(100);
    CHECK(ebbtide_check_and_insert(seen, "a", 1, &call, &error) == EBBTIDE_NEW);
    call = at_second(110);
    CHECK(ebbtide_contains(seen, "a", 1, &call, &error) == 1);
    uint64_t age = 0;
    uint32_t unit = 0;
    CHECK(ebbtide_age(seen, "a", 1, &age, &unit, &call, &error) == 1);
    CHECK(unit == EBBTIDE_MICROSECONDS && age <= 10 * SECOND);
    CHECK(ebbtide_seen_within(seen, "a", 1, 30 * SECOND, EBBTIDE_MICROSECONDS, &call, &error) == 1);
    CHECK(ebbtide_insert(seen, "b", 1, &call, &error) == 1);
    call = at_second(0);
    CHECK(ebbtide_insert(seen, "late", 4, &call, &error) == 0);
    CHECK(ebbtide_check_and_insert(seen, "late", 4, &call, &error) == EBBTIDE_TOO_LATE);
    call = at_second(300);
    CHECK(ebbtide_contains(seen, "a", 1, &call, &error) == 0);
    /* Since it was accepted, not since it was seen. */
    call.flags |= EBBTIDE_SINCE_LAST_ACCEPTED;
    CHECK(ebbtide_check_and_insert(seen, "c", 1, &call, &error) == EBBTIDE_NEW);
    call.time_us += 50 * SECOND;
    CHECK(ebbtide_check_and_insert(seen, "c", 1, &call, &error) == EBBTIDE_PRESENT);
    call.time_us += 50 * SECOND;
    CHECK(ebbtide_check_and_insert(seen, "c", 1, &call, &error) == EBBTIDE_NEW);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

static void counts(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *sold = ebbtide_create(
        at(directory, "counts"), "counting capacity=1000 counter-bits=4", NULL, &error);
    CHECK_CODE(error, 0);
    struct ebbtide_call dozen = EBBTIDE_CALL_INIT;
    dozen.flags = EBBTIDE_WITH_WEIGHT;
    dozen.weight = 12;
    double count = -1;
    CHECK(ebbtide_insert(sold, "apples", 6, &dozen, &error) == 1);
    CHECK(ebbtide_remove(sold, "apples", 6, NULL, &error) == 1);
    CHECK(ebbtide_remove(sold, "pears", 5, NULL, &error) == 0);
    CHECK(ebbtide_estimate(sold, "apples", 6, &count, NULL, &error) == 0);
    CHECK(count == 11);
    CHECK(ebbtide_insert(sold, "apples", 6, &dozen, &error) == 1);
    /* The counters of 4 bits are saturated now. */
    CHECK(ebbtide_estimate(sold, "apples", 6, &count, NULL, &error) == 1);
    CHECK(count == 15);
    CHECK(ebbtide_close(sold, &error) == 0);
    CHECK_CODE(error, 0);
}

enum { MANY = 1000 };

static void bulk(const char *directory) {
    struct ebbtide_error *error = NULL;
    const char *path = at(directory, "bulk");
    struct ebbtide_filter *seen = ebbtide_create(path, "time-limited window=60s fpr=0.000001",
                                                 NULL, &error);
    CHECK_CODE(error, 0);
    static uint32_t numbers[MANY];
    static struct ebbtide_key keys[MANY];
    static uint8_t answers[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        numbers[i] = i;
        keys[i].bytes = &numbers[i];
        keys[i].length = sizeof numbers[i];
    }
    keys[7].bytes = NULL;
    keys[7].length = 0;
    struct ebbtide_call call = at_second(100);
    CHECK(ebbtide_insert_all(seen, keys, MANY / 2, &call, &error) == MANY / 2);
    CHECK(ebbtide_contains_all(seen, keys, MANY, answers, &call, &error) == 0);
    for (int i = 0; i < MANY; i++) CHECK(answers[i] == (i < MANY / 2));
    CHECK(ebbtide_check_and_insert_all(seen, keys, MANY, answers, &call, &error) == 0);
    for (int i = 0; i < MANY; i++) {
        CHECK(answers[i] == (i < MANY / 2 ? EBBTIDE_PRESENT : EBBTIDE_NEW));
    }
    CHECK(ebbtide_insert_all(seen, NULL, 0, NULL, &error) == 0);
    CHECK(ebbtide_contains_all(seen, NULL, 0, NULL, NULL, &error) == 0);
    CHECK(ebbtide_check_and_insert_all(seen, NULL, 0, NULL, NULL, &error) == 0);
    /* Other keys, before the window. */
    for (uint32_t i = 0; i < MANY; i++) {
        numbers[i] += MANY;
        keys[i].bytes = &numbers[i];
        keys[i].length = sizeof numbers[i];
    }
    call = at_second(0);
    CHECK(ebbtide_insert_all(seen, keys, MANY, &call, &error) == 0);
    CHECK(ebbtide_check_and_insert_all(seen, keys, MANY, answers, &call, &error) == 0);
    for (int i = 0; i < MANY; i++) CHECK(answers[i] == EBBTIDE_TOO_LATE);
    CHECK_CODE(error, 0);

    /* An error leaves no answer. */
    call = at_second(0);
    call.time_us = UINT64_MAX;
    CHECK(ebbtide_check_and_insert_all(seen, keys, MANY, answers, &call, &error) == -1);
    CHECK_CODE(error, EBBTIDE_TIME_AHEAD);
    for (int i = 0; i < MANY; i++) CHECK(answers[i] == EBBTIDE_NO_ANSWER);
    CHECK(ebbtide_insert_all(seen, keys, MANY, &call, &error) == -1);
    CHECK_CODE(error, EBBTIDE_TIME_AHEAD);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

static void whole_filter(const char *directory) {
    struct ebbtide_error *error = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s", at(directory, "whole"));
    struct ebbtide_filter *seen = ebbtide_open(path, "bloom capacity=1000", "hash-seed=7", &error);
    CHECK_CODE(error, 0);
    uint64_t lsn = 77;
    CHECK(ebbtide_checkpoint(seen, &lsn, &error) == 0);
    CHECK(lsn == 0);
    char *before = ebbtide_digest(seen, &error);
    CHECK(ebbtide_insert(seen, "a", 1, NULL, &error) == 1);
    CHECK(ebbtide_sync(seen, &error) == 0);
    CHECK(ebbtide_checkpoint(seen, &lsn, &error) == 0);
    CHECK(lsn > 0);
    CHECK(ebbtide_checkpoint(seen, NULL, &error) == 0);
    char *digest = ebbtide_digest(seen, &error);
    CHECK(strlen(digest) == 32 && strcmp(before, digest) != 0);
    char *stat = ebbtide_stat(seen, &error);
    CHECK(strstr(stat, "\"kind\":\"bloom\"") != NULL);
    CHECK(strstr(stat, "\"inserts\":1,") != NULL);
    CHECK(strstr(stat, "\"parameters\":{") != NULL);
    ebbtide_string_free(stat);

    /* A reader beside the filter. */
    struct ebbtide_filter *reader = ebbtide_reader_open(path, NULL, &error);
    CHECK_CODE(error, 0);
    const struct ebbtide_key keys[] = {{"a", 1}, {"b", 1}};
    uint8_t answers[] = {7, 7};
    CHECK(ebbtide_contains(reader, "a", 1, NULL, &error) == 1);
    CHECK(ebbtide_contains_all(reader, keys, 2, answers, NULL, &error) == 0);
    CHECK(answers[0] == 1 && answers[1] == 0);
    char *read = ebbtide_digest(reader, &error);
    CHECK_CODE(error, 0);
    CHECK(strcmp(read, digest) == 0);
    stat = ebbtide_stat(reader, &error);
    CHECK(strstr(stat, "\"inserts\":1,") != NULL);
    ebbtide_string_free(stat);
    ebbtide_string_free(read);
    ebbtide_string_free(before);
    ebbtide_string_free(digest);
    ebbtide_string_free(NULL);
    CHECK(ebbtide_close(reader, &error) == 0);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK(ebbtide_close(NULL, &error) == 0);
    CHECK_CODE(error, 0);
}

/* Records with lower numbers are on the disk. */
static uint64_t durable_lsn(struct ebbtide_filter *filter) {
    char *stat = ebbtide_stat(filter, NULL);
    uint64_t lsn = 0;
    CHECK(stat != NULL);
    CHECK(sscanf(strstr(stat, "\"durable_lsn\":"), "\"durable_lsn\":%" SCNu64, &lsn) == 1);
    ebbtide_string_free(stat);
    return lsn;
}

static void durability(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = ebbtide_create(at(directory, "durable"), "bloom capacity=1000",
                                                 "durability=never", &error);
    CHECK_CODE(error, 0);
    /* The record of this key has number 1. */
    struct ebbtide_call call = EBBTIDE_CALL_INIT;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == 1);
    CHECK(durable_lsn(seen) == 1);
    call.durability = EBBTIDE_DURABILITY_ALWAYS;
    CHECK(ebbtide_insert(seen, "a", 1, &call, &error) == 1);
    CHECK(durable_lsn(seen) > 1);
    call.flags = EBBTIDE_WITHOUT_WAITING;
    CHECK(ebbtide_insert(seen, "b", 1, &call, &error) == -1);
    CHECK_CODE(error, EBBTIDE_WOULD_WAIT);
    CHECK(ebbtide_contains(seen, "b", 1, NULL, &error) == 0);
    call.durability = EBBTIDE_DURABILITY_NEVER;
    CHECK(ebbtide_check_and_insert(seen, "b", 1, &call, &error) == EBBTIDE_NEW);
    call.durability = EBBTIDE_DURABILITY_INTERVAL;
    call.interval_us = 1000;
    CHECK(ebbtide_check_and_insert(seen, "b", 1, &call, &error) == EBBTIDE_PRESENT);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

static void batches(const char *directory) {
    struct ebbtide_error *error = NULL;
    const char *path = at(directory, "batches");
    struct ebbtide_filter *seen = ebbtide_create(path, "time-limited window=60s fpr=0.0001", NULL,
                                                 &error);
    CHECK_CODE(error, 0);
    struct ebbtide_call call = EBBTIDE_CALL_INIT;
    call.durability = EBBTIDE_DURABILITY_ALWAYS;
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, &call, &error);
    CHECK(batch != NULL);
    call = at_second(100);
    CHECK(ebbtide_batch_check_and_insert(batch, "a", 1, &call, &error) == EBBTIDE_NEW);
    CHECK(ebbtide_batch_check_and_insert(batch, "a", 1, &call, &error) == EBBTIDE_PRESENT);
    CHECK(ebbtide_batch_insert(batch, "b", 1, &call, &error) == 0);
    CHECK(ebbtide_batch_set_position(batch, 7, 70, &error) == 0);
    CHECK(ebbtide_batch_set_position(batch, 7, UINT64_MAX, &error) == 0);

    /* Nothing of it is there before the commit, and all of it after that. */
    uint64_t position = 77;
    CHECK(ebbtide_contains(seen, "a", 1, &call, &error) == 0);
    CHECK(ebbtide_position(seen, 7, &position, &error) == 0 && position == 77);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    CHECK(ebbtide_contains(seen, "a", 1, &call, &error) == 1);
    CHECK(ebbtide_contains(seen, "b", 1, &call, &error) == 1);
    CHECK(ebbtide_position(seen, 7, &position, &error) == 1 && position == UINT64_MAX);
    CHECK(ebbtide_position(seen, 7, NULL, &error) == 1);
    struct ebbtide_call later = at_second(200);
    CHECK(ebbtide_contains(seen, "b", 1, &later, &error) == 0);

    /* It is empty then. What is cleared or released has no effect. */
    CHECK(ebbtide_batch_insert(batch, "c", 1, &call, &error) == 0);
    CHECK(ebbtide_batch_clear(batch, &error) == 0);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    CHECK(ebbtide_batch_insert(batch, "d", 1, &call, &error) == 0);
    ebbtide_batch_free(batch);
    ebbtide_batch_free(NULL);
    CHECK(ebbtide_contains(seen, "c", 1, &call, &error) == 0);
    CHECK(ebbtide_contains(seen, "d", 1, &call, &error) == 0);

    /* Somebody else inserts a key that was new. */
    batch = ebbtide_batch_new(seen, NULL, &error);
    CHECK(ebbtide_batch_check_and_insert(batch, "e", 1, &call, &error) == EBBTIDE_NEW);
    CHECK(ebbtide_batch_set_position(batch, 8, 1, &error) == 0);
    CHECK(ebbtide_check_and_insert(seen, "e", 1, &call, &error) == EBBTIDE_NEW);
    CHECK(ebbtide_batch_commit(batch, &error) == -1);
    CHECK_CODE(error, EBBTIDE_CONFLICT);
    CHECK(ebbtide_position(seen, 8, NULL, &error) == 0);
    CHECK(ebbtide_batch_clear(batch, &error) == 0);
    CHECK(ebbtide_batch_check_and_insert(batch, "e", 1, &call, &error) == EBBTIDE_PRESENT);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    call = at_second(300);
    CHECK(ebbtide_insert(seen, "f", 1, &call, &error) == 1);
    call = at_second(200);
    CHECK(ebbtide_batch_check_and_insert(batch, "late", 4, &call, &error) == EBBTIDE_TOO_LATE);
    ebbtide_batch_free(batch);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);

    /* Positions are on the disk, and readers have them. */
    struct ebbtide_filter *reader = ebbtide_reader_open(path, NULL, &error);
    CHECK(ebbtide_position(reader, 7, &position, &error) == 1 && position == UINT64_MAX);
    CHECK(ebbtide_batch_new(reader, NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_UNSUPPORTED, "batch");
    CHECK(ebbtide_close(reader, &error) == 0);
    CHECK_CODE(error, 0);

    /* Weights are counts. */
    seen = ebbtide_create(at(directory, "weighed"), "counting capacity=1000 fpr=0.0001", NULL,
                          &error);
    batch = ebbtide_batch_new(seen, NULL, &error);
    struct ebbtide_call weighed = EBBTIDE_CALL_INIT;
    weighed.flags = EBBTIDE_WITH_WEIGHT;
    weighed.weight = 5;
    CHECK(ebbtide_batch_insert(batch, "a", 1, &weighed, &error) == 0);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    double weight = 0;
    CHECK(ebbtide_estimate(seen, "a", 1, &weight, NULL, &error) == 0 && weight == 5);
    ebbtide_batch_free(batch);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

/* A copy of the filter is one of its own, a cleared filter has nothing, and a backup comes back. */
static void copies(const char *directory) {
    struct ebbtide_error *error = NULL;
    char path[4096], backup[4096], restored[4096];
    snprintf(path, sizeof path, "%s", at(directory, "copied"));
    snprintf(backup, sizeof backup, "%s", at(directory, "backup"));
    snprintf(restored, sizeof restored, "%s", at(directory, "restored"));
    struct ebbtide_filter *seen = ebbtide_create(path, "age-partitioned last=1000 fpr=0.0001",
                                                 "durability=never", &error);
    CHECK_CODE(error, 0);
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, NULL, &error);
    CHECK(ebbtide_batch_insert(batch, "a", 1, NULL, &error) == 0);
    CHECK(ebbtide_batch_set_position(batch, 7, 70, &error) == 0);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    ebbtide_batch_free(batch);
    CHECK(ebbtide_backup(seen, backup, &error) == 0);
    CHECK(ebbtide_backup(seen, backup, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_EXISTS, "backup");
    CHECK(ebbtide_insert(seen, "b", 1, NULL, &error) == 1);
    CHECK(ebbtide_clear(seen, &error) == 0);
    CHECK(ebbtide_contains(seen, "a", 1, NULL, &error) == 0);
    CHECK(ebbtide_contains(seen, "b", 1, NULL, &error) == 0);
    /* The positions stay: they are of the stream, not of the keys. */
    CHECK(ebbtide_position(seen, 7, NULL, &error) == 1);
    CHECK(ebbtide_restore(path, restored, &error) == -1);
    CHECK_CODE(error, EBBTIDE_LOCKED);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);

    CHECK(ebbtide_restore(backup, restored, &error) == 0);
    CHECK(ebbtide_restore(backup, restored, &error) == -1);
    CHECK_CODE(error, EBBTIDE_EXISTS);
    struct ebbtide_filter *again = ebbtide_open_existing(restored, NULL, &error);
    CHECK(ebbtide_contains(again, "a", 1, NULL, &error) == 1);
    CHECK(ebbtide_contains(again, "b", 1, NULL, &error) == 0);
    uint64_t position = 0;
    CHECK(ebbtide_position(again, 7, &position, &error) == 1 && position == 70);
    CHECK(ebbtide_close(again, &error) == 0);

    struct ebbtide_filter *reader = ebbtide_reader_open(path, NULL, &error);
    CHECK(ebbtide_contains(reader, "a", 1, NULL, &error) == 0);
    CHECK(ebbtide_clear(reader, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_UNSUPPORTED, "clear");
    CHECK(ebbtide_backup(reader, restored, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_UNSUPPORTED, "backup");
    CHECK(ebbtide_close(reader, &error) == 0);
    CHECK_CODE(error, 0);

    char *plan = ebbtide_plan("bloom capacity=1M fpr=0.001", "stripes=4", &error);
    CHECK(plan != NULL && strstr(plan, "\"stripes\":4,") != NULL);
    uint64_t memory = 0;
    CHECK(sscanf(strstr(plan, "\"memory_bytes\":"), "\"memory_bytes\":%" SCNu64, &memory) == 1);
    CHECK(memory > 1700000 && memory < 2100000);
    ebbtide_string_free(plan);
    CHECK(ebbtide_plan("bloom", NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_PARAMETER);
}

static struct ebbtide_filter *shared;

/* Inserts the same keys as all other threads; returns how many were new to this one. */
static void *insert_as_one_of_many(void *news) {
    for (uint32_t key = 0; key < MANY; key++) {
        struct ebbtide_error *error = NULL;
        int answer = ebbtide_check_and_insert(shared, &key, sizeof key, NULL, &error);
        CHECK_CODE(error, 0);
        *(int *)news += answer == EBBTIDE_NEW;
    }
    return NULL;
}

static void threads(const char *directory) {
    struct ebbtide_error *error = NULL;
    shared = ebbtide_create(at(directory, "threads"), "bloom capacity=100k fpr=0.000001", NULL,
                            &error);
    CHECK_CODE(error, 0);
    pthread_t running[4];
    int news[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&running[i], NULL, insert_as_one_of_many, &news[i]) == 0);
    }
    int all = 0;
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(running[i], NULL) == 0);
        all += news[i];
    }
    CHECK(all == MANY);
    CHECK(ebbtide_close(shared, &error) == 0);
    CHECK_CODE(error, 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *directory = arguments[1];
    singles(directory);
    times(directory);
    counts(directory);
    bulk(directory);
    whole_filter(directory);
    durability(directory);
    batches(directory);
    copies(directory);
    threads(directory);
    int major = -1, minor = -1, patch = -1;
    CHECK(sscanf(ebbtide_version(), "%d.%d.%d", &major, &minor, &patch) == 3);
    puts("passed");
    return 0;
}
