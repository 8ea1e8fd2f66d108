// What cgo calls: functions of ebbtide.h with answers and errors returned by value.
//
// With pointers to places for them, as in ebbtide.h, Go would allocate those places on its heap in
// every call. Keys come as pointers to bytes, and handles as numbers, so that cgo has nothing to
// check in them: it would allocate for the pointer to a structure of which Go knows no member.
#ifndef EBBTIDE_GO_SHIM_H
#define EBBTIDE_GO_SHIM_H

#include <ebbtide.h>
#include <stdlib.h>

// What a call returned. On an error, error is not NULL, and belongs to the caller.
struct shim_answer {
    int64_t value;
    // What the function stores elsewhere: an age, a token, a position, an LSN or a hash.
    uint64_t number;
    // What it stores besides: the unit of an age, or when a lease ends.
    uint64_t second;
    double count;
    struct ebbtide_error *error;
};

enum shim_operation {
    SHIM_INSERT,
    SHIM_CONTAINS,
    SHIM_CHECK_AND_INSERT,
    SHIM_REMOVE,
    SHIM_AGE,
    SHIM_SEEN_WITHIN,
    SHIM_ESTIMATE,
    SHIM_CLAIM,
    SHIM_CONFIRM,
    SHIM_RELEASE,
    SHIM_EXTEND,
    SHIM_END_CLAIM,
    SHIM_KEY_HASH,
};

// An operation on one key. first and second are its other arguments: a token and a lease, or an
// amount and its unit.
static inline struct shim_answer shim_key(int operation, uintptr_t handle, const uint8_t *key,
                                          size_t length, uint64_t first, uint64_t second,
                                          struct ebbtide_call call) {
    struct ebbtide_filter *filter = (struct ebbtide_filter *)handle;
    struct shim_answer answer = {-1, 0, 0, 0.0, NULL};
    struct ebbtide_error **error = &answer.error;
    uint32_t unit = 0;
    switch (operation) {
    case SHIM_INSERT:
        answer.value = ebbtide_insert(filter, key, length, &call, error);
        break;
    case SHIM_CONTAINS:
        answer.value = ebbtide_contains(filter, key, length, &call, error);
        break;
    case SHIM_CHECK_AND_INSERT:
        answer.value = ebbtide_check_and_insert(filter, key, length, &call, error);
        break;
    case SHIM_REMOVE:
        answer.value = ebbtide_remove(filter, key, length, &call, error);
        break;
    case SHIM_AGE:
        answer.value =
            ebbtide_age(filter, key, length, &answer.number, &unit, &call, error);
        answer.second = unit;
        break;
    case SHIM_SEEN_WITHIN:
        answer.value = ebbtide_seen_within(filter, key, length, first, (uint32_t)second, &call,
                                           error);
        break;
    case SHIM_ESTIMATE:
        answer.value = ebbtide_estimate(filter, key, length, &answer.count, &call, error);
        break;
    case SHIM_CLAIM:
        answer.value = ebbtide_claim(filter, key, length, second, &answer.number, &answer.second,
                                     &call, error);
        break;
    case SHIM_CONFIRM:
        answer.value = ebbtide_confirm(filter, key, length, first, &call, error);
        break;
    case SHIM_RELEASE:
        answer.value = ebbtide_release(filter, key, length, first, &call, error);
        break;
    case SHIM_EXTEND:
        answer.value = ebbtide_extend(filter, key, length, first, second, &answer.second, &call,
                                      error);
        break;
    case SHIM_END_CLAIM:
        answer.value = ebbtide_end_claim(filter, key, length, &call, error);
        break;
    case SHIM_KEY_HASH:
        answer.value = ebbtide_key_hash(filter, key, length, &answer.number, error);
        break;
    }
    return answer;
}

enum { SHIM_FEW = 64 };

// The keys that lie one after the other in bytes, each up to its end. few has room for SHIM_FEW.
// Returns NULL if there is no memory. They are in C's memory: C may not store pointers in Go's.
static inline struct ebbtide_key *shim_keys(const uint8_t *bytes, const uint64_t *ends,
                                            size_t count, struct ebbtide_key *few) {
    struct ebbtide_key *keys = few;
    if (count > SHIM_FEW) keys = (struct ebbtide_key *)malloc(count * sizeof *keys);
    uint64_t start = 0;
    for (size_t at = 0; keys != NULL && at < count; at++) {
        keys[at].bytes = bytes == NULL ? NULL : bytes + start;
        keys[at].length = ends[at] - start;
        start = ends[at];
    }
    return keys;
}

// The value of an answer if there was no memory for the keys.
enum { SHIM_NO_MEMORY = -2 };

// An operation on many keys: SHIM_INSERT, SHIM_CONTAINS or SHIM_CHECK_AND_INSERT.
static inline struct shim_answer shim_all(int operation, uintptr_t handle, const uint8_t *bytes,
                                          const uint64_t *ends, size_t count, uint8_t *answers,
                                          struct ebbtide_call call) {
    struct ebbtide_filter *filter = (struct ebbtide_filter *)handle;
    struct shim_answer answer = {SHIM_NO_MEMORY, 0, 0, 0.0, NULL};
    struct ebbtide_error **error = &answer.error;
    struct ebbtide_key few[SHIM_FEW], *keys = shim_keys(bytes, ends, count, few);
    if (keys == NULL) return answer;
    switch (operation) {
    case SHIM_INSERT:
        answer.value = ebbtide_insert_all(filter, keys, count, &call, error);
        break;
    case SHIM_CONTAINS:
        answer.value = ebbtide_contains_all(filter, keys, count, answers, &call, error);
        break;
    case SHIM_CHECK_AND_INSERT:
        answer.value = ebbtide_check_and_insert_all(filter, keys, count, answers, &call, error);
        break;
    }
    if (keys != few) free(keys);
    return answer;
}

// Adds keys to a batch. With SHIM_CHECK_AND_INSERT there is an answer for each; those of the keys
// after a failed one are EBBTIDE_NO_ANSWER.
static inline struct shim_answer shim_batch(int operation, uintptr_t handle, const uint8_t *bytes,
                                            const uint64_t *ends, size_t count, uint8_t *answers,
                                            struct ebbtide_call call) {
    struct ebbtide_batch *batch = (struct ebbtide_batch *)handle;
    struct shim_answer answer = {0, 0, 0, 0.0, NULL};
    uint64_t start = 0;
    for (size_t at = 0; at < count; at++) {
        const uint8_t *key = bytes == NULL ? NULL : bytes + start;
        size_t length = ends[at] - start;
        start = ends[at];
        int found = EBBTIDE_NO_ANSWER;
        if (answer.error == NULL) {
            found = operation == SHIM_INSERT
                        ? ebbtide_batch_insert(batch, key, length, &call, &answer.error)
                        : ebbtide_batch_check_and_insert(batch, key, length, &call, &answer.error);
        }
        if (answer.error != NULL) answer.value = -1;
        if (answers != NULL) {
            answers[at] = answer.error == NULL ? (uint8_t)found : EBBTIDE_NO_ANSWER;
        }
    }
    return answer;
}

// Adds the insert of a claimed key, and the end of its claim.
static inline struct shim_answer shim_batch_confirm(struct ebbtide_batch *batch,
                                                    const uint8_t *key, size_t length,
                                                    uint64_t token, struct ebbtide_call call) {
    struct shim_answer answer = {-1, 0, 0, 0.0, NULL};
    answer.value = ebbtide_batch_confirm(batch, key, length, token, &call, &answer.error);
    return answer;
}

struct shim_read {
    int found;
    struct ebbtide_operation operation;
    struct ebbtide_error *error;
};

// The next operation of a history; without a wait if timeout_ms is 0.
static inline struct shim_read shim_read(struct ebbtide_history *history, uint64_t timeout_ms) {
    struct shim_read read = {-1, {sizeof(struct ebbtide_operation)}, NULL};
    read.found = timeout_ms == 0
                     ? ebbtide_history_read(history, &read.operation, &read.error)
                     : ebbtide_history_wait(history, timeout_ms, &read.operation, &read.error);
    return read;
}

#endif
