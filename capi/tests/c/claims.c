/* Claims: one caller at a time works on a key, and the key is in the window once that is done. */
#include "check.h"

#include <pthread.h>
#include <time.h>

static const uint64_t MINUTE = 60000;

static void sleep_ms(long ms) {
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    CHECK(nanosleep(&span, NULL) == 0);
}

static uint64_t now_us(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static struct ebbtide_filter *created(const char *directory, const char *name) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = ebbtide_create(
        at(directory, name), "time-limited window=1h fpr=0.000001", "durability=never", &error);
    CHECK_CODE(error, 0);
    return seen;
}

static int claim(struct ebbtide_filter *seen, const char *key, uint64_t lease_ms, uint64_t *token) {
    struct ebbtide_error *error = NULL;
    int answer = ebbtide_claim(seen, key, strlen(key), lease_ms, token, NULL, NULL, &error);
    CHECK_CODE(error, 0);
    return answer;
}

static void contains_member(struct ebbtide_filter *filter, const char *member) {
    char *stat = ebbtide_stat(filter, NULL);
    CHECK(stat != NULL && strstr(stat, member) != NULL);
    ebbtide_string_free(stat);
}

/* A handler whose first attempt fails, and whose retry is not taken for a repetition. */
static const char *deliver(struct ebbtide_filter *seen, const char *id, int works) {
    struct ebbtide_error *error = NULL;
    uint64_t token = 0;
    int answer = ebbtide_claim(seen, id, strlen(id), 30000, &token, NULL, NULL, &error);
    CHECK_CODE(error, 0);
    if (answer == EBBTIDE_SEEN) return "done before";
    if (answer == EBBTIDE_IN_PROGRESS) return "try again later";
    if (!works) {
        CHECK(ebbtide_release(seen, id, strlen(id), token, NULL, &error) == 1);
        return "failed";
    }
    CHECK(ebbtide_confirm(seen, id, strlen(id), token, NULL, &error) == 0);
    CHECK_CODE(error, 0);
    return "done";
}

static void handlers(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = created(directory, "handlers");
    uint64_t token = 77, until = 77;
    CHECK(claim(seen, "order 17", MINUTE, &token) == EBBTIDE_YOURS && token != 77);
    CHECK(ebbtide_contains(seen, "order 17", 8, NULL, &error) == 0);
    CHECK(strcmp(deliver(seen, "order 17", 1), "try again later") == 0);
    CHECK(ebbtide_release(seen, "order 17", 8, token, NULL, &error) == 1);
    CHECK(ebbtide_release(seen, "order 17", 8, token, NULL, &error) == 0);
    CHECK(strcmp(deliver(seen, "order 17", 0), "failed") == 0);
    CHECK(strcmp(deliver(seen, "order 17", 1), "done") == 0);
    CHECK(strcmp(deliver(seen, "order 17", 1), "done before") == 0);
    CHECK(ebbtide_contains(seen, "order 17", 8, NULL, &error) == 1);
    /* What is not given is not written. */
    token = 77;
    CHECK(ebbtide_claim(seen, "order 17", 8, MINUTE, &token, &until, NULL, &error) == EBBTIDE_SEEN);
    CHECK(token == 77 && until == 77);
    contains_member(seen, "\"claims\":0,\"oldest_claim_ms\":null,");
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

static void leases(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = created(directory, "leases");
    uint64_t late = 0, next = 0, until = 0, before = now_us();
    CHECK(claim(seen, "a", 50, &late) == EBBTIDE_YOURS);
    sleep_ms(100);
    /* Over, although nobody else has the key yet. */
    CHECK(ebbtide_confirm(seen, "a", 1, late, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_LEASE_LOST, "not held any more");
    CHECK(claim(seen, "a", MINUTE, &next) == EBBTIDE_YOURS && next > late);
    CHECK(ebbtide_confirm(seen, "a", 1, late, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_LEASE_LOST);
    CHECK(ebbtide_extend(seen, "a", 1, late, MINUTE, NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_LEASE_LOST);
    CHECK(ebbtide_release(seen, "a", 1, late, NULL, &error) == 0);
    CHECK(ebbtide_claim(seen, "a", 1, 50, &late, &until, NULL, &error) == EBBTIDE_IN_PROGRESS);
    CHECK(until > before && until <= now_us() + MINUTE * 1000);
    /* Renewed. */
    CHECK(ebbtide_extend(seen, "a", 1, next, 10 * MINUTE, &until, NULL, &error) == 0);
    CHECK(until > before + 9 * MINUTE * 1000);
    CHECK(ebbtide_extend(seen, "a", 1, next, MINUTE, NULL, NULL, &error) == 0);
    contains_member(seen, "\"claims\":1,\"oldest_claim_ms\":");
    /* The token passes from one handle to another; the other key has none. */
    struct ebbtide_filter *other = ebbtide_open_existing(at(directory, "leases"), NULL, &error);
    CHECK_CODE(error, 0);
    CHECK(ebbtide_confirm(other, "b", 1, next, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_LEASE_LOST);
    CHECK(ebbtide_confirm(other, "a", 1, next, NULL, &error) == 0);
    CHECK(claim(seen, "a", 1, &late) == EBBTIDE_SEEN);
    /* Ended by somebody else. */
    CHECK(claim(seen, "c", MINUTE, &late) == EBBTIDE_YOURS);
    CHECK(ebbtide_end_claim(other, "c", 1, NULL, &error) == 1);
    CHECK(ebbtide_end_claim(other, "c", 1, NULL, &error) == 0);
    CHECK(ebbtide_confirm(seen, "c", 1, late, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_LEASE_LOST);
    /* Closing releases nothing. */
    CHECK(claim(other, "d", MINUTE, &late) == EBBTIDE_YOURS);
    CHECK(ebbtide_close(other, &error) == 0);
    CHECK(claim(seen, "d", MINUTE, &next) == EBBTIDE_IN_PROGRESS);
    CHECK(ebbtide_confirm(seen, "d", 1, late, NULL, &error) == 0);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

/* What is held, the oldest first, as much of it as there is room for. */
static void listed(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = created(directory, "listed");
    struct ebbtide_open_claim claims[3];
    const char *const keys[] = {"a", "b"};
    uint64_t tokens[2] = {0, 0}, hash = 0;
    CHECK(ebbtide_claims(seen, NULL, 0, &error) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(claim(seen, keys[i], MINUTE, &tokens[i]) == EBBTIDE_YOURS);
    }
    CHECK(ebbtide_claims(seen, NULL, 0, &error) == 2);
    memset(claims, 77, sizeof claims);
    CHECK(ebbtide_claims(seen, claims, 1, &error) == 2);
    CHECK(claims[0].token == tokens[0] && claims[1].token == UINT64_C(0x4d4d4d4d4d4d4d4d));
    CHECK(ebbtide_claims(seen, claims, 3, &error) == 2);
    CHECK_CODE(error, 0);
    for (int i = 0; i < 2; i++) {
        CHECK(ebbtide_key_hash(seen, keys[i], 1, &hash, &error) == 0);
        CHECK(claims[i].hash == hash && claims[i].token == tokens[i]);
        CHECK(claims[i].age_us + claims[i].remaining_us == MINUTE * 1000);
    }
    CHECK(claims[2].token == UINT64_C(0x4d4d4d4d4d4d4d4d));
    CHECK(ebbtide_confirm(seen, "a", 1, tokens[0], NULL, &error) == 0);
    CHECK(ebbtide_claims(seen, claims, 3, &error) == 1 && claims[0].token == tokens[1]);
    CHECK(ebbtide_claims(seen, NULL, 1, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the array of claims is NULL");
    CHECK(ebbtide_claims(NULL, claims, 3, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the filter is NULL");
    struct ebbtide_filter *reader = ebbtide_reader_open(at(directory, "listed"), NULL, &error);
    claims[0].token = 0;
    CHECK(ebbtide_claims(reader, claims, 3, &error) == 1 && claims[0].token == tokens[1]);
    CHECK(ebbtide_close(reader, &error) == 0);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

static void batches(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = created(directory, "batches");
    uint64_t token = 0, position = 0;
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, NULL, &error);
    CHECK(claim(seen, "a", MINUTE, &token) == EBBTIDE_YOURS);
    CHECK(ebbtide_batch_confirm(batch, "a", 1, token, NULL, &error) == 0);
    CHECK(ebbtide_batch_set_position(batch, 3, 9, &error) == 0);
    CHECK(ebbtide_contains(seen, "a", 1, NULL, &error) == 0);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    CHECK(claim(seen, "a", MINUTE, &token) == EBBTIDE_SEEN);
    CHECK(ebbtide_position(seen, 3, &position, &error) == 1 && position == 9);
    /* Over before the commit: nothing of the batch is written. */
    CHECK(claim(seen, "b", 50, &token) == EBBTIDE_YOURS);
    CHECK(ebbtide_batch_confirm(batch, "b", 1, token, NULL, &error) == 0);
    CHECK(ebbtide_batch_set_position(batch, 3, 10, &error) == 0);
    sleep_ms(100);
    CHECK(ebbtide_batch_commit(batch, &error) == -1);
    CHECK_CODE(error, EBBTIDE_LEASE_LOST);
    CHECK(ebbtide_position(seen, 3, &position, &error) == 1 && position == 9);
    CHECK(ebbtide_batch_clear(batch, &error) == 0);
    /* Cleared and freed batches release their keys. */
    CHECK(claim(seen, "c", MINUTE, &token) == EBBTIDE_YOURS);
    CHECK(ebbtide_batch_confirm(batch, "c", 1, token, NULL, &error) == 0);
    CHECK(ebbtide_batch_clear(batch, &error) == 0);
    CHECK(claim(seen, "c", MINUTE, &token) == EBBTIDE_YOURS);
    CHECK(ebbtide_batch_confirm(batch, "c", 1, token, NULL, &error) == 0);
    ebbtide_batch_free(batch);
    CHECK(claim(seen, "c", MINUTE, &token) == EBBTIDE_YOURS);
    /* So does one that refuses the claim. */
    struct ebbtide_call ahead = EBBTIDE_CALL_INIT;
    ahead.flags = EBBTIDE_WITH_TIME;
    ahead.time_us = now_us() + 6000 * MINUTE * 1000;
    batch = ebbtide_batch_new(seen, NULL, &error);
    CHECK(ebbtide_batch_confirm(batch, "c", 1, token, &ahead, &error) == -1);
    CHECK_CODE(error, EBBTIDE_TIME_AHEAD);
    CHECK(claim(seen, "c", MINUTE, &token) == EBBTIDE_YOURS);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    ebbtide_batch_free(batch);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

/* The time of the call is that of the question and of the insert; the lease is of real time. */
static void times(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = created(directory, "times");
    struct ebbtide_call call = EBBTIDE_CALL_INIT, later = EBBTIDE_CALL_INIT;
    call.flags = later.flags = EBBTIDE_WITH_TIME;
    call.time_us = UINT64_C(1700000000000000);
    later.time_us = call.time_us + 59 * MINUTE * 1000;
    const char *const keys[] = {"a", "b"};
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, NULL, &error);
    uint64_t tokens[2] = {0, 0}, token = 0;
    for (int i = 0; i < 2; i++) {
        CHECK(ebbtide_claim(seen, keys[i], 1, MINUTE, &tokens[i], NULL, &call, &error) ==
              EBBTIDE_YOURS);
    }
    CHECK(ebbtide_confirm(seen, "a", 1, tokens[0], &call, &error) == 0);
    CHECK(ebbtide_batch_confirm(batch, "b", 1, tokens[1], &call, &error) == 0);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    ebbtide_batch_free(batch);
    for (int i = 0; i < 2; i++) {
        CHECK(ebbtide_claim(seen, keys[i], 1, MINUTE, &token, NULL, &later, &error) ==
              EBBTIDE_SEEN);
    }
    later.time_us += 10 * MINUTE * 1000;
    for (int i = 0; i < 2; i++) {
        CHECK(ebbtide_claim(seen, keys[i], 1, MINUTE, &token, NULL, &later, &error) ==
              EBBTIDE_YOURS);
    }
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

static void wrong(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = created(directory, "wrong");
    uint64_t token = 77;
    CHECK(ebbtide_claim(NULL, "a", 1, 1, &token, NULL, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the filter is NULL");
    CHECK(ebbtide_claim(seen, NULL, 1, 1, &token, NULL, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the key");
    CHECK(ebbtide_claim(seen, "a", 1, 1, NULL, NULL, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "token");
    const uint64_t wrong_leases[] = {0, 97 * 24 * 60 * MINUTE + 86400001, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong_leases / sizeof *wrong_leases; i++) {
        CHECK(ebbtide_claim(seen, "a", 1, wrong_leases[i], &token, NULL, NULL, &error) == -1);
        CHECK_ERROR(error, EBBTIDE_PARAMETER, "lease");
        CHECK(ebbtide_extend(seen, "a", 1, 1, wrong_leases[i], NULL, NULL, &error) == -1);
        CHECK_CODE(error, EBBTIDE_PARAMETER);
    }
    struct ebbtide_call call = EBBTIDE_CALL_INIT;
    call.flags = 1024;
    CHECK(ebbtide_claim(seen, "a", 1, 1, &token, NULL, &call, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "0x400");
    CHECK(token == 77);
    CHECK(claim(seen, "a", MINUTE, &token) == EBBTIDE_YOURS);
    /* None of these touches the claim. */
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, NULL, &error);
    CHECK(ebbtide_batch_confirm(NULL, "a", 1, token, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the batch is NULL");
    CHECK(ebbtide_batch_confirm(batch, "a", 1, token, &call, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    ebbtide_batch_free(batch);
    CHECK(ebbtide_confirm(seen, "a", 1, token, &call, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_release(NULL, "a", 1, token, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_end_claim(NULL, "a", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    call.flags = EBBTIDE_WITHOUT_WAITING;
    call.durability = EBBTIDE_DURABILITY_ALWAYS;
    CHECK(ebbtide_confirm(seen, "a", 1, token, &call, &error) == -1);
    CHECK_CODE(error, EBBTIDE_WOULD_WAIT);
    struct ebbtide_filter *reader = ebbtide_reader_open(at(directory, "wrong"), NULL, &error);
    CHECK_CODE(error, 0);
    CHECK(ebbtide_claim(reader, "a", 1, 1, &token, NULL, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_UNSUPPORTED, "claim");
    CHECK(ebbtide_confirm(reader, "a", 1, token, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_UNSUPPORTED);
    contains_member(reader, "\"claims\":1,");
    CHECK(ebbtide_close(reader, &error) == 0);
    call.durability = EBBTIDE_DURABILITY_OF_FILTER;
    CHECK(ebbtide_extend(seen, "a", 1, token, MINUTE, NULL, &call, &error) == 0);
    CHECK(ebbtide_confirm(seen, "a", 1, token, &call, &error) == 0);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

enum { KEYS = 300, THREADS = 4 };

static struct ebbtide_filter *shared;

/* Works on the keys that it gets, a third of which fail once; returns how many were done. */
static void *work(void *done) {
    for (int round = 0; round < 3; round++) {
        for (uint32_t key = 0; key < KEYS; key++) {
            struct ebbtide_error *error = NULL;
            uint64_t token = 0;
            int answer =
                ebbtide_claim(shared, &key, sizeof key, MINUTE, &token, NULL, NULL, &error);
            CHECK_CODE(error, 0);
            if (answer != EBBTIDE_YOURS) continue;
            if (key % 3 == 0 && round == 0) {
                CHECK(ebbtide_release(shared, &key, sizeof key, token, NULL, &error) == 1);
                continue;
            }
            CHECK(ebbtide_confirm(shared, &key, sizeof key, token, NULL, &error) == 0);
            ++*(int *)done;
        }
    }
    return NULL;
}

static void threads(const char *directory) {
    struct ebbtide_error *error = NULL;
    shared = created(directory, "threads");
    pthread_t running[THREADS];
    int done[THREADS] = {0}, all = 0;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&running[i], NULL, work, &done[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(running[i], NULL) == 0);
        all += done[i];
    }
    CHECK(all == KEYS);
    CHECK(ebbtide_close(shared, &error) == 0);
    CHECK_CODE(error, 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *directory = arguments[1];
    handlers(directory);
    leases(directory);
    listed(directory);
    batches(directory);
    times(directory);
    wrong(directory);
    threads(directory);
    puts("passed");
    return 0;
}
