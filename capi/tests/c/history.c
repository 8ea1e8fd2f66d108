/* The past of a filter: its operations one by one, readers as of moments, and filters of then. */
#include "check.h"

#include <pthread.h>

static const uint64_t NOON = 1748865600000000, SECOND = 1000000;

static struct ebbtide_filter *created(const char *directory, const char *name) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen =
        ebbtide_create(at(directory, name), "time-limited window=1h fpr=0.000001",
                       "durability=always keep-log=24h hash-seed=7", &error);
    CHECK_CODE(error, 0);
    return seen;
}

static void insert(struct ebbtide_filter *seen, const char *key, uint64_t second) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_call call = EBBTIDE_CALL_INIT;
    call.flags = EBBTIDE_WITH_TIME;
    call.time_us = NOON + second * SECOND;
    CHECK(ebbtide_insert(seen, key, strlen(key), &call, &error) == 1);
    CHECK_CODE(error, 0);
}

static struct ebbtide_moment moment(uint32_t form, uint64_t number) {
    struct ebbtide_moment moment;
    memset(&moment, 0, sizeof moment);
    moment.at = form;
    moment.number = number;
    return moment;
}

static uint64_t hash_of(struct ebbtide_filter *seen, const char *key) {
    struct ebbtide_error *error = NULL;
    uint64_t hash = 0;
    CHECK(ebbtide_key_hash(seen, key, strlen(key), &hash, &error) == 0);
    CHECK_CODE(error, 0);
    return hash;
}

static struct ebbtide_history *history(const char *path, const struct ebbtide_moment *after,
                                       uint32_t flags) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_history *log = ebbtide_history_open(path, after, flags, &error);
    CHECK_CODE(error, 0);
    CHECK(log != NULL);
    return log;
}

static uint64_t position(struct ebbtide_history *log) {
    struct ebbtide_error *error = NULL;
    uint64_t lsn = 0;
    CHECK(ebbtide_history_position(log, &lsn, &error) == 0);
    CHECK_CODE(error, 0);
    return lsn;
}

/* The next operation, of this kind. */
static struct ebbtide_operation next(struct ebbtide_history *log, uint32_t kind) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_operation operation;
    memset(&operation, 77, sizeof operation);
    operation.size = sizeof operation;
    CHECK(ebbtide_history_read(log, &operation, &error) == 1);
    CHECK_CODE(error, 0);
    CHECK(operation.size == sizeof operation && operation.kind == kind && operation.reserved == 0);
    CHECK(operation.commit_lsn >= operation.lsn && operation.timeline > 0);
    return operation;
}

static int ends(struct ebbtide_history *log) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_operation operation;
    memset(&operation, 77, sizeof operation);
    operation.size = sizeof operation;
    int found = ebbtide_history_read(log, &operation, &error);
    CHECK_CODE(error, 0);
    CHECK(found == 1 || operation.hash == UINT64_C(0x4d4d4d4d4d4d4d4d));
    return found == 0;
}

static int contains_at(const char *path, const struct ebbtide_moment *moment, const char *key) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *reader = ebbtide_reader_open_at(path, moment, NULL, &error);
    CHECK_CODE(error, 0);
    int found = ebbtide_contains(reader, key, strlen(key), NULL, &error);
    CHECK(ebbtide_close(reader, &error) == 0);
    CHECK_CODE(error, 0);
    return found;
}

/* Every kind of operation comes once, in its order, with all that it has. */
static void operations(const char *directory) {
    struct ebbtide_error *error = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s", at(directory, "operations"));
    struct ebbtide_filter *seen = created(directory, "operations");
    struct ebbtide_history *log = history(path, NULL, 0);
    CHECK(ends(log) && position(log) == 1);
    insert(seen, "a", 0);
    CHECK(ebbtide_insert(seen, "b", 1, NULL, &error) == 1);
    struct ebbtide_operation operation = next(log, EBBTIDE_OPERATION_INSERT);
    CHECK(operation.hash == hash_of(seen, "a") && operation.weight == 1 && operation.left == 0);
    CHECK(operation.time_us == NOON);
    CHECK(operation.flags == (EBBTIDE_HAS_TIME | EBBTIDE_IS_STREAM_TIME));
    operation = next(log, EBBTIDE_OPERATION_INSERT);
    CHECK(operation.hash == hash_of(seen, "b") && operation.flags == EBBTIDE_HAS_TIME);
    CHECK(operation.time_us > NOON && operation.source == 0 && operation.token == 0);
    CHECK(ends(log) && position(log) > operation.commit_lsn);

    uint64_t token = 0;
    CHECK(ebbtide_claim(seen, "c", 1, 60000, &token, NULL, NULL, &error) == EBBTIDE_YOURS);
    CHECK(ebbtide_release(seen, "c", 1, token, NULL, &error) == 1);
    CHECK(ebbtide_sync(seen, &error) == 0);
    operation = next(log, EBBTIDE_OPERATION_CLAIM);
    CHECK(operation.hash == hash_of(seen, "c") && operation.token == token);
    CHECK(operation.lease_us == 60 * SECOND);
    operation = next(log, EBBTIDE_OPERATION_RELEASE);
    CHECK(operation.hash == hash_of(seen, "c") && operation.token == token);

    /* A batch is one commit. A history continues before one of which it has returned a part. */
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, NULL, &error);
    CHECK(ebbtide_batch_insert(batch, "d", 1, NULL, &error) == 0);
    CHECK(ebbtide_batch_insert(batch, "e", 1, NULL, &error) == 0);
    CHECK(ebbtide_batch_set_position(batch, 3, 900, &error) == 0);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    ebbtide_batch_free(batch);
    CHECK(ebbtide_clear(seen, &error) == 0);
    CHECK_CODE(error, 0);
    struct ebbtide_operation first = next(log, EBBTIDE_OPERATION_INSERT);
    CHECK(first.left == 2 && first.hash == hash_of(seen, "d"));
    struct ebbtide_moment before = moment(EBBTIDE_AT_LSN, position(log) - 1);
    struct ebbtide_history *again = history(path, &before, 0);
    operation = next(again, EBBTIDE_OPERATION_INSERT);
    CHECK(memcmp(&operation, &first, sizeof first) == 0);
    ebbtide_history_close(again);
    operation = next(log, EBBTIDE_OPERATION_INSERT);
    CHECK(operation.left == 1 && operation.commit_lsn == first.commit_lsn);
    operation = next(log, EBBTIDE_OPERATION_POSITION);
    CHECK(operation.left == 0 && operation.source == 3 && operation.position == 900);
    CHECK(operation.commit_lsn == first.commit_lsn && operation.flags == 0);
    next(log, EBBTIDE_OPERATION_CLEAR);
    CHECK(ends(log));
    ebbtide_history_close(log);
    ebbtide_history_close(NULL);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

/* Readers and filters as of LSNs, times and positions. */
static void moments(const char *directory) {
    struct ebbtide_error *error = NULL;
    char path[4096], restored[4096];
    snprintf(path, sizeof path, "%s", at(directory, "moments"));
    snprintf(restored, sizeof restored, "%s", at(directory, "moments-restored"));
    struct ebbtide_filter *seen = created(directory, "moments");
    insert(seen, "a", 0);
    struct ebbtide_history *log = history(path, NULL, 0);
    struct ebbtide_moment first = moment(EBBTIDE_AT_LSN, next(log, 1).commit_lsn);
    struct ebbtide_call call = EBBTIDE_CALL_INIT;
    call.flags = EBBTIDE_WITH_TIME;
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, NULL, &error);
    for (uint64_t number = 0; number < 2; number++) {
        call.time_us = NOON + (60 + 60 * number) * SECOND;
        CHECK(ebbtide_batch_insert(batch, number == 0 ? "b" : "c", 1, &call, &error) == 0);
        CHECK(ebbtide_batch_set_position(batch, 3, 800 + 100 * number, &error) == 0);
        CHECK(ebbtide_batch_commit(batch, &error) == 0);
    }
    ebbtide_batch_free(batch);
    CHECK(ebbtide_clear(seen, &error) == 0);
    CHECK_CODE(error, 0);

    CHECK(ebbtide_contains(seen, "a", 1, &call, &error) == 0);
    CHECK(contains_at(path, &first, "a") == 1 && contains_at(path, &first, "b") == 0);
    struct ebbtide_moment time = moment(EBBTIDE_AT_TIME, NOON + 60 * SECOND);
    CHECK(contains_at(path, &time, "b") == 1 && contains_at(path, &time, "c") == 0);
    time.number--;
    CHECK(contains_at(path, &time, "a") == 1 && contains_at(path, &time, "b") == 0);
    struct ebbtide_moment place = moment(EBBTIDE_AT_POSITION, 899);
    place.source = 3;
    CHECK(contains_at(path, &place, "b") == 1 && contains_at(path, &place, "c") == 0);

    uint64_t lsn = 0, inserts = 0;
    CHECK(ebbtide_restore_at(path, &place, restored, &lsn, &inserts, &error) == 0);
    CHECK_CODE(error, 0);
    CHECK(lsn > first.number && inserts == 2);
    struct ebbtide_filter *then = ebbtide_open_existing(restored, NULL, &error);
    CHECK(ebbtide_contains(then, "b", 1, &call, &error) == 1);
    CHECK(ebbtide_contains(then, "c", 1, &call, &error) == 0);
    CHECK(ebbtide_close(then, &error) == 0);
    CHECK(ebbtide_restore_at(path, &place, restored, NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_EXISTS);

    /* A reader of the past does not write, and its time stands still. */
    struct ebbtide_filter *reader = ebbtide_reader_open_at(path, &first, NULL, &error);
    CHECK(ebbtide_insert(reader, "z", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_UNSUPPORTED);
    CHECK(ebbtide_key_hash(reader, "z", 1, &lsn, &error) == -1);
    CHECK_CODE(error, EBBTIDE_UNSUPPORTED);
    insert(seen, "z", 7000);
    CHECK(ebbtide_contains(reader, "a", 1, NULL, &error) == 1);
    CHECK(ebbtide_close(reader, &error) == 0);

    struct ebbtide_moment never = moment(EBBTIDE_AT_LSN, 1000000);
    CHECK(ebbtide_reader_open_at(path, &never, NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_NOT_KEPT, "1000000");
    CHECK(ebbtide_history_open(path, &never, 0, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_NOT_KEPT);
    CHECK(ebbtide_restore_at(path, &never, at(directory, "never"), NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_NOT_KEPT);
    ebbtide_history_close(log);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

enum { KEYS = 2000 };

static void *write_keys(void *filter) {
    for (int key = 0; key < KEYS; key++) {
        struct ebbtide_error *error = NULL;
        struct ebbtide_call call = EBBTIDE_CALL_INIT;
        call.durability = EBBTIDE_DURABILITY_NEVER;
        struct ebbtide_filter *seen = (struct ebbtide_filter *)filter;
        CHECK(ebbtide_insert(seen, &key, sizeof key, &call, &error) == 1);
        CHECK_CODE(error, 0);
    }
    return NULL;
}

/* What another thread writes comes while it writes, each key once. */
static void followed(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = created(directory, "followed");
    struct ebbtide_history *log =
        history(at(directory, "followed"), NULL, EBBTIDE_WITH_UNDURABLE);
    struct ebbtide_operation operation;
    operation.size = sizeof operation;
    CHECK(ebbtide_history_wait(log, 1, &operation, &error) == 0);
    CHECK_CODE(error, 0);
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, write_keys, seen) == 0);
    for (int key = 0; key < KEYS; key++) {
        uint64_t hash = 0;
        CHECK(ebbtide_history_wait(log, UINT64_MAX, &operation, &error) == 1);
        CHECK_CODE(error, 0);
        CHECK(ebbtide_key_hash(seen, &key, sizeof key, &hash, &error) == 0);
        CHECK(operation.kind == EBBTIDE_OPERATION_INSERT && operation.hash == hash);
    }
    CHECK(pthread_join(writer, NULL) == 0);
    CHECK(ends(log));
    CHECK(ebbtide_insert(seen, "more", 4, NULL, &error) == 1);
    next(log, EBBTIDE_OPERATION_INSERT);
    ebbtide_history_close(log);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

/* An operation of a later version of the header, and of none. */
struct later {
    struct ebbtide_operation operation;
    uint64_t more[2];
};

static void sizes(const char *path, struct ebbtide_filter *seen) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_history *log = history(path, NULL, 0);
    struct later later;
    memset(&later, 77, sizeof later);
    const size_t wrong[] = {0, 8, sizeof later.operation - 1, 5000, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        later.operation.size = wrong[i];
        CHECK(ebbtide_history_read(log, &later.operation, &error) == -1);
        CHECK_ERROR(error, EBBTIDE_ARGUMENT, "sizeof(struct ebbtide_operation)");
    }
    later.operation.size = sizeof later.operation + 8;
    CHECK(ebbtide_history_read(log, &later.operation, &error) == 1);
    CHECK_CODE(error, 0);
    CHECK(later.operation.size == sizeof later.operation + 8);
    CHECK(later.operation.hash == hash_of(seen, "a"));
    CHECK(later.more[0] == 0 && later.more[1] == UINT64_C(0x4d4d4d4d4d4d4d4d));
    ebbtide_history_close(log);
}

static void wrong(const char *directory) {
    struct ebbtide_error *error = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s", at(directory, "wrong"));
    struct ebbtide_filter *seen = created(directory, "wrong");
    insert(seen, "a", 0);
    struct ebbtide_moment moments[] = {moment(0, 0), moment(4, 0), moment(EBBTIDE_AT_LSN, 0)};
    moments[2].source = 5;
    const char *const parts[] = {"found 0", "found 4", "EBBTIDE_AT_POSITION"};
    for (size_t i = 0; i < 3; i++) {
        CHECK(ebbtide_reader_open_at(path, &moments[i], NULL, &error) == NULL);
        CHECK_ERROR(error, EBBTIDE_ARGUMENT, parts[i]);
        CHECK(ebbtide_history_open(path, &moments[i], 0, &error) == NULL);
        CHECK_ERROR(error, EBBTIDE_ARGUMENT, parts[i]);
        CHECK(ebbtide_restore_at(path, &moments[i], path, NULL, NULL, &error) == -1);
        CHECK_ERROR(error, EBBTIDE_ARGUMENT, parts[i]);
    }
    struct ebbtide_moment any = moment(EBBTIDE_AT_LSN, 1);
    CHECK(ebbtide_reader_open_at(path, NULL, NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the moment is NULL");
    CHECK(ebbtide_reader_open_at(NULL, &any, NULL, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the path is NULL");
    CHECK(ebbtide_reader_open_at(path, &any, "colour=red", &error) == NULL);
    CHECK_CODE(error, EBBTIDE_PARAMETER);
    CHECK(ebbtide_restore_at(NULL, &any, path, NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_restore_at(path, &any, NULL, NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_history_open(NULL, NULL, 0, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_history_open(path, NULL, 6, &error) == NULL);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "0x6");
    CHECK(ebbtide_history_open(at(directory, "missing"), NULL, 0, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_NOT_A_FILTER);
    struct ebbtide_operation operation;
    operation.size = sizeof operation;
    CHECK(ebbtide_history_read(NULL, &operation, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the history is NULL");
    CHECK(ebbtide_history_wait(NULL, 1, &operation, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_history_position(NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    struct ebbtide_history *log = history(path, NULL, 0);
    CHECK(ebbtide_history_read(log, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "struct ebbtide_operation is NULL");
    CHECK(ebbtide_history_position(log, NULL, &error) == 0);
    ebbtide_history_close(log);
    CHECK(ebbtide_key_hash(NULL, "a", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_key_hash(seen, NULL, 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    sizes(path, seen);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *directory = arguments[1];
    operations(directory);
    moments(directory);
    followed(directory);
    wrong(directory);
    puts("passed");
    return 0;
}
