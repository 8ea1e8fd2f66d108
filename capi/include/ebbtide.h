/*
 * ebbtide: has this key been seen in the last N minutes, or among the last N items?
 *
 * Link with -lebbtide. README.md beside the library's source explains building, ownership, threads
 * and fork.
 *
 * Every function that can fail takes a pointer to a pointer to an error, which may be NULL. On an
 * error it stores a new one there, without reading what was there before; otherwise it stores
 * nothing. Release the error with ebbtide_error_free.
 *
 * Any thread may use a filter, any number of them at the same time, except while it is closed.
 * Do not cancel a thread (pthread_cancel) inside a function: it aborts the process.
 * Strings end with a NUL byte. Keys are bytes of any value and any number, also none.
 *
 * This file is made from the library's source.
 */


#ifndef EBBTIDE_H
#define EBBTIDE_H

#include <stddef.h>
#include <stdint.h>

/**
 * Settings of a call without any: struct ebbtide_call call = EBBTIDE_CALL_INIT;
 */
#define EBBTIDE_CALL_INIT { sizeof(struct ebbtide_call), 0, 0, 0, 0, 0.0, 0 }


/**
 * The operating system refused an operation, for another reason than a full disk.
 */
#define EBBTIDE_IO 1

/**
 * The disk is full, or a quota exhausted. Nothing is lost; the same handle writes again once there
 * is space.
 */
#define EBBTIDE_FULL_DISK 2

/**
 * A file of the filter has invalid content. The message names the file, the offset and the remedy.
 */
#define EBBTIDE_DAMAGED 3

/**
 * A file was written by another version of the format.
 */
#define EBBTIDE_VERSION 4

/**
 * There is no filter in this directory.
 */
#define EBBTIDE_NOT_A_FILTER 5

/**
 * A filter exists where a new one should be created.
 */
#define EBBTIDE_EXISTS 6

/**
 * A file of another program has the name of one of the filter's.
 */
#define EBBTIDE_OCCUPIED 7

/**
 * The filter exists, and differs from the spec or the options.
 */
#define EBBTIDE_MISMATCH 8

/**
 * A parameter, an option or a setting of a call has a value that is not allowed.
 */
#define EBBTIDE_PARAMETER 9

/**
 * Another handle has been opening, closing or recovering the filter for a minute, or has it open
 * where that is not allowed (ebbtide_restore of an open filter).
 */
#define EBBTIDE_LOCKED 10

/**
 * The filter has as many open handles as it can have.
 */
#define EBBTIDE_CROWDED 11

/**
 * The handle was opened before this process was forked off. Open the filter again in the child.
 */
#define EBBTIDE_FORKED 12

/**
 * The handle is closed.
 */
#define EBBTIDE_CLOSED 13

/**
 * The filter was closed, recovered or replaced by others meanwhile. Close the handle and open the
 * filter again.
 */
#define EBBTIDE_RETIRED 14

/**
 * The filter refuses writes, because a sync failed or a thread panicked. Close every handle and
 * open the filter again.
 */
#define EBBTIDE_POISONED 15

/**
 * The given time is too far ahead of the clock.
 */
#define EBBTIDE_TIME_AHEAD 16

/**
 * The filter's kind, or the handle (one from ebbtide_reader_open), does not have this operation.
 */
#define EBBTIDE_UNSUPPORTED 17

/**
 * The call would have to wait, and has the flag EBBTIDE_WITHOUT_WAITING, or longer than wait_us
 * says. Nothing has happened; of a call with several keys, those before the one that would wait
 * are inserted.
 */
#define EBBTIDE_WOULD_WAIT 18

/**
 * A record does not continue a filter in memory. No function of this library returns it.
 */
#define EBBTIDE_DIVERGED 19

/**
 * An error that this version does not distinguish.
 */
#define EBBTIDE_OTHER 20

/**
 * A key that ebbtide_batch_check_and_insert answered as new was inserted by another caller before
 * ebbtide_batch_commit, or by now is a false positive. Nothing of the batch has been written:
 * clear it and take the same messages again.
 */
#define EBBTIDE_CONFLICT 21

/**
 * The claim is over: its lease has ended, or it was confirmed or released. Nothing has happened.
 */
#define EBBTIDE_LEASE_LOST 22

/**
 * The filter holds as many claims as it can. Nothing has happened: confirm or release some, or
 * wait until a lease is over.
 */
#define EBBTIDE_CLAIMS_FULL 23

/**
 * A moment of the past that the log does not reach.
 */
#define EBBTIDE_NOT_KEPT 24

/**
 * An argument is not allowed, such as a NULL pointer. Nothing has happened.
 */
#define EBBTIDE_ARGUMENT 1000

/**
 * The library itself has a defect and panicked. Close the handle, and please report the message.
 */
#define EBBTIDE_PANIC 1001

/**
 * Flag of a call: its time is time_us instead of the clock's.
 */
#define EBBTIDE_WITH_TIME 1

/**
 * Flag of a call: each key has the weight in the member weight.
 */
#define EBBTIDE_WITH_WEIGHT 2

/**
 * Flag of a call to ebbtide_check_and_insert, ebbtide_check_and_insert_all and ebbtide_batch_new:
 * only new keys are inserted, so that a key stays in the window since it was last accepted.
 * Without the flag every check inserts, and a key stays in the window since it was last seen.
 */
#define EBBTIDE_SINCE_LAST_ACCEPTED 4

/**
 * Flag of a call: it fails with EBBTIDE_WOULD_WAIT where it would have to wait, for example for a
 * sync, a checkpoint or another process. Nothing has happened then; of a call with several keys,
 * those before the one that would wait are inserted, see ebbtide_insert_all.
 */
#define EBBTIDE_WITHOUT_WAITING 8

/**
 * The call has the filter's durability.
 */
#define EBBTIDE_DURABILITY_OF_FILTER 0

/**
 * The call returns when its records are on the disk.
 */
#define EBBTIDE_DURABILITY_ALWAYS 1

/**
 * The call never causes a sync.
 */
#define EBBTIDE_DURABILITY_NEVER 2

/**
 * The records of the call are on the disk after interval_us microseconds at the latest, or 100 if
 * that is more. The filter's handle syncs as often from then on.
 */
#define EBBTIDE_DURABILITY_INTERVAL 3

/**
 * The entry in an array of answers for a key that an error left without one.
 */
#define EBBTIDE_NO_ANSWER 255

/**
 * A moment of a filter's past: after the record with the LSN in number.
 */
#define EBBTIDE_AT_LSN 1

/**
 * A moment of a filter's past: before the first operation that is later than the time in number,
 * in microseconds since the Unix epoch.
 */
#define EBBTIDE_AT_TIME 2

/**
 * A moment of a filter's past: before the position of a source passed the one in number.
 */
#define EBBTIDE_AT_POSITION 3

/**
 * Flag of ebbtide_history_open: operations come before they are on the disk. A power cut may take
 * them back; if that happens to what was returned, the next call fails with EBBTIDE_NOT_KEPT.
 */
#define EBBTIDE_WITH_UNDURABLE 1

/**
 * Kind of an operation that this version does not distinguish.
 */
#define EBBTIDE_OPERATION_OTHER 0

/**
 * Kind of an operation: a key was inserted. It has hash and weight.
 */
#define EBBTIDE_OPERATION_INSERT 1

/**
 * Kind of an operation: a key was removed. It has hash and weight.
 */
#define EBBTIDE_OPERATION_REMOVE 2

/**
 * Kind of an operation: all keys were removed.
 */
#define EBBTIDE_OPERATION_CLEAR 3

/**
 * Kind of an operation: a source was read up to a position. It has source and position.
 */
#define EBBTIDE_OPERATION_POSITION 4

/**
 * Kind of an operation: a key was claimed, or its claim extended. It has hash, token and lease_us.
 */
#define EBBTIDE_OPERATION_CLAIM 5

/**
 * Kind of an operation: a claim ended. It has hash and token.
 */
#define EBBTIDE_OPERATION_RELEASE 6

/**
 * Flag of an operation: it has a time.
 */
#define EBBTIDE_HAS_TIME 1

/**
 * Flag of an operation: the time came with the key, and not from a clock.
 */
#define EBBTIDE_IS_STREAM_TIME 2

/**
 * Flag of ebbtide_alter: keys of which the log has no record any more are forgotten. Without the
 * flag the filter stays as it is if some of them would be in the new window (EBBTIDE_NOT_KEPT).
 */
#define EBBTIDE_FORGET 1

/**
 * Answer of ebbtide_check_and_insert: the key was in the window, or is a false positive.
 */
#define EBBTIDE_PRESENT 0

/**
 * Answer of ebbtide_check_and_insert: the key was not in the window; it is now.
 */
#define EBBTIDE_NEW 1

/**
 * Answer of ebbtide_check_and_insert: the key's time lies before the window. Its presence is
 * unknown, and nothing was changed.
 */
#define EBBTIDE_TOO_LATE 2

/**
 * Unit of ages and windows: insert operations.
 */
#define EBBTIDE_ITEMS 0

/**
 * Unit of ages and windows: microseconds.
 */
#define EBBTIDE_MICROSECONDS 1

/**
 * Answer of ebbtide_claim: the key was in the window, or is a false positive. The work was done.
 */
#define EBBTIDE_SEEN 0

/**
 * Answer of ebbtide_claim: the key is the caller's to work on, and nobody else's.
 */
#define EBBTIDE_YOURS 1

/**
 * Answer of ebbtide_claim: somebody else is working on the key.
 */
#define EBBTIDE_IN_PROGRESS 2

/**
 * An error: a code, a message, and the path of what it is about.
 */
struct ebbtide_error;

/**
 * An open filter.
 */
struct ebbtide_filter;

/**
 * The operations in the log of a filter, from a place in it on.
 */
struct ebbtide_history;

/**
 * Keys and positions that are written in one atomic step.
 */
struct ebbtide_batch;

/**
 * Settings of one call. Set size to sizeof(struct ebbtide_call) and all other members to 0, or
 * initialise it with EBBTIDE_CALL_INIT; then set what differs. A later version may add members at
 * the end; size then keeps programs built with this one working.
 *
 * Settings that an operation does not use are checked and have no effect: the weight of a query,
 * for example.
 */
struct ebbtide_call {
    /**
     * sizeof(struct ebbtide_call).
     */
    size_t size;
    /**
     * EBBTIDE_WITH_TIME, EBBTIDE_WITH_WEIGHT, EBBTIDE_SINCE_LAST_ACCEPTED and
     * EBBTIDE_WITHOUT_WAITING, joined by |.
     */
    uint32_t flags;
    /**
     * EBBTIDE_DURABILITY_OF_FILTER, _ALWAYS, _NEVER or _INTERVAL.
     */
    uint32_t durability;
    /**
     * The longest time between two syncs in microseconds, from 1 to 86400000000 (a day), for
     * EBBTIDE_DURABILITY_INTERVAL; otherwise 0.
     */
    uint64_t interval_us;
    /**
     * The time of the operation in microseconds since the Unix epoch, with EBBTIDE_WITH_TIME;
     * otherwise 0. Keys may be inserted out of order within the window.
     */
    uint64_t time_us;
    /**
     * The weight of each key, with EBBTIDE_WITH_WEIGHT; otherwise 0. For kinds that count it is
     * the count, a whole number from 1 to 1099511562240; for kinds with importances it is the
     * importance.
     */
    double weight;
    /**
     * How long the call waits at most for a live owner of a lock that it needs, such as a stopped
     * process, in microseconds, and at least 10000; then it fails with EBBTIDE_WOULD_WAIT, and
     * nothing has happened; in a call with several keys the limit is that of each key, and those
     * before are inserted. 0, and programs built without this member: as long as it takes. It
     * waits as long as it takes for what makes progress, such as a sync. Not together with
     * EBBTIDE_WITHOUT_WAITING.
     */
    uint64_t wait_us;
};

/**
 * A key of a bulk operation: length bytes of any values. If length is 0, bytes may be NULL.
 */
struct ebbtide_key {
    /**
     * The bytes.
     */
    const void *bytes;
    /**
     * The number of bytes.
     */
    size_t length;
};

/**
 * A claim that is held, from ebbtide_claims. This structure has the same members in all versions.
 */
struct ebbtide_open_claim {
    /**
     * The hash of the key: ebbtide_key_hash.
     */
    uint64_t hash;
    /**
     * The token.
     */
    uint64_t token;
    /**
     * How long ago the claim began, in microseconds.
     */
    uint64_t age_us;
    /**
     * When it ends if it is not renewed, in microseconds from now.
     */
    uint64_t remaining_us;
};

/**
 * A moment of a filter's past. A batch counts as a whole or not at all: as of a moment within one,
 * it has not happened.
 */
struct ebbtide_moment {
    /**
     * EBBTIDE_AT_LSN, EBBTIDE_AT_TIME or EBBTIDE_AT_POSITION.
     */
    uint32_t at;
    /**
     * The LSN, the time in microseconds since the Unix epoch, or the position.
     */
    uint64_t number;
    /**
     * The source, as in ebbtide_batch_set_position, with EBBTIDE_AT_POSITION; otherwise 0.
     */
    uint64_t source;
};

/**
 * An operation in the log of a filter. Set size to sizeof(struct ebbtide_operation); the library
 * sets the other members, those that the kind does not have to 0. A later version may add members
 * at the end; size then keeps programs built with this one working.
 *
 * Operations that happened together, those of a batch, form a commit. They come one after the
 * other, and are all there as soon as the first one is.
 */
struct ebbtide_operation {
    /**
     * sizeof(struct ebbtide_operation).
     */
    size_t size;
    /**
     * The LSN of its record.
     */
    uint64_t lsn;
    /**
     * The LSN of the last record of its commit. As of this LSN it has happened: continue after it.
     */
    uint64_t commit_lsn;
    /**
     * Each opening of a filter that nobody else has open begins a timeline.
     */
    uint64_t timeline;
    /**
     * How many operations of the same commit come after this one.
     */
    uint64_t left;
    /**
     * When, in microseconds since the Unix epoch by the filter's time (that of claims by the time
     * of leases), with EBBTIDE_HAS_TIME. A filter without a clock has no times, and a position has
     * none.
     */
    uint64_t time_us;
    /**
     * The hash of the key: ebbtide_key_hash.
     */
    uint64_t hash;
    /**
     * The source that was read.
     */
    uint64_t source;
    /**
     * The position up to which it was read.
     */
    uint64_t position;
    /**
     * The token of the claim.
     */
    uint64_t token;
    /**
     * For how long the claim holds from time_us on, in microseconds.
     */
    uint64_t lease_us;
    /**
     * One of EBBTIDE_OPERATION_INSERT and so on. A later version may return kinds that this header
     * does not have.
     */
    uint32_t kind;
    /**
     * EBBTIDE_HAS_TIME and EBBTIDE_IS_STREAM_TIME, joined by |.
     */
    uint32_t flags;
    /**
     * How often the key was inserted or removed, or how important it is; 1 for kinds without
     * weights. A large count has several operations.
     */
    uint32_t weight;
    /**
     * 0.
     */
    uint32_t reserved;
};

/**
 * What ebbtide_alter has done. Set size to sizeof(struct ebbtide_altered); the library sets the
 * other members. A later version may add members at the end; size then keeps programs built with
 * this one working.
 */
struct ebbtide_altered {
    /**
     * sizeof(struct ebbtide_altered).
     */
    size_t size;
    /**
     * The LSN of the alteration. As of it the filter has the new parameters, as of the one before
     * the former ones.
     */
    uint64_t lsn;
    /**
     * Insertions and removals in the log, which the filter now has.
     */
    uint64_t operations;
    /**
     * The time of the first of them in microseconds since the Unix epoch, if has_since is 1.
     */
    uint64_t since_us;
    /**
     * For how long writers were stopped at the end, in microseconds.
     */
    uint64_t stopped_us;
    /**
     * 1 if the log reaches back to the creation of the filter. If 0, the filter does not know any
     * more what was inserted before.
     */
    uint32_t is_whole;
    /**
     * 1 if the first operation has a time, otherwise 0.
     */
    uint32_t has_since;
};

/**
 * What ebbtide_alter would take. Set size to sizeof(struct ebbtide_alteration_plan); the library
 * sets the other members. A later version may add members at the end; size then keeps programs
 * built with this one working.
 */
struct ebbtide_alteration_plan {
    /**
     * sizeof(struct ebbtide_alteration_plan).
     */
    size_t size;
    /**
     * Records of the log that it reads.
     */
    uint64_t records;
    /**
     * The LSN of the first of them. If it is 1, the log reaches back to the creation of the
     * filter. Otherwise what was inserted before is forgotten.
     */
    uint64_t first_lsn;
    /**
     * The time of the first operation in microseconds since the Unix epoch, if has_since is 1.
     */
    uint64_t since_us;
    /**
     * Bytes of memory that the filter takes when it is new, with the parameters that it has.
     */
    uint64_t memory_before;
    /**
     * The same, with the new ones. The alteration takes it twice, beside what the filter takes
     * now, and as many bytes of disk for a snapshot.
     */
    uint64_t memory_after;
    /**
     * 1 if the log has the whole new window, as far as records and times tell, and no removals
     * that the new kind cannot make. If 0, the alteration needs EBBTIDE_FORGET.
     */
    uint32_t has_window;
    /**
     * 1 if the first operation has a time, otherwise 0.
     */
    uint32_t has_since;
};

/**
 * What ebbtide_remake has made. Set size to sizeof(struct ebbtide_remade); the library sets the
 * other members. A later version may add members at the end; size then keeps programs built with
 * this one working.
 */
struct ebbtide_remade {
    /**
     * sizeof(struct ebbtide_remade).
     */
    size_t size;
    /**
     * Insertions and removals that the new filter has taken.
     */
    uint64_t operations;
    /**
     * The time of the first of them in microseconds since the Unix epoch, if has_since is 1.
     */
    uint64_t since_us;
    /**
     * 1 if the logs reach back to the creation of each filter. If 0, the new one does not know
     * what was inserted before.
     */
    uint32_t is_whole;
    /**
     * 1 if the first operation has a time, otherwise 0.
     */
    uint32_t has_since;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns a filter, which is created if there is none at this path.
 *
 * The spec is a kind with its parameters, such as "time-limited window=10m fpr=0.001", in the
 * spelling of the command line. Of a filter that exists the named parameters are compared
 * (EBBTIDE_MISMATCH). Options are text too, such as "durability=always stripes=16"; NULL for the
 * defaults. They are compared as well, except those that belong to the handle: durability,
 * checkpoint-bytes, background and image; and keep-log, which the filter has from then on: how
 * much of the log is kept for ebbtide_reader_open_at, ebbtide_restore_at, ebbtide_history_open,
 * ebbtide_alter and ebbtide_remake, such as "keep-log=24h" or "keep-log=10GiB".
 *
 * Returns NULL on an error. Close the filter with ebbtide_close.
 */
struct ebbtide_filter *ebbtide_open(const char *path,
                                    const char *spec,
                                    const char *options,
                                    struct ebbtide_error **error);

/**
 * As ebbtide_open, for a filter that does not exist yet: otherwise EBBTIDE_EXISTS.
 */
struct ebbtide_filter *ebbtide_create(const char *path,
                                      const char *spec,
                                      const char *options,
                                      struct ebbtide_error **error);

/**
 * As ebbtide_open, for a filter that exists: otherwise EBBTIDE_NOT_A_FILTER.
 */
struct ebbtide_filter *ebbtide_open_existing(const char *path,
                                             const char *options,
                                             struct ebbtide_error **error);

/**
 * Returns a handle for queries, which needs no write permission and changes nothing. It answers
 * from the live state while other processes have the filter open, also from the files alone.
 * Functions that change the filter fail with EBBTIDE_UNSUPPORTED, and so does ebbtide_key_hash.
 *
 * Returns NULL on an error. Close the handle with ebbtide_close.
 */
struct ebbtide_filter *ebbtide_reader_open(const char *path,
                                           const char *options,
                                           struct ebbtide_error **error);

/**
 * Closes a filter: writes a snapshot, so that the next opening has nothing to replay, and releases
 * the handle. No thread may use the handle, or a batch of it, meanwhile or afterwards. NULL does
 * nothing.
 *
 * Returns 0, or -1 on an error. The handle is released then too; only the snapshot is missing.
 */
int ebbtide_close(struct ebbtide_filter *filter, struct ebbtide_error **error);

/**
 * Inserts a key of length bytes. Returns 1, or 0 if its time lies before the window, so that
 * nothing was changed, or -1 on an error.
 */
int ebbtide_insert(struct ebbtide_filter *filter,
                   const void *key,
                   size_t length,
                   const struct ebbtide_call *call,
                   struct ebbtide_error **error);

/**
 * Queries a key. Returns 1 if it is in the window, 0 if not, -1 on an error. The answer is never 0
 * for a key in the window, and 1 for other keys at the filter's false-positive rate.
 */
int ebbtide_contains(struct ebbtide_filter *filter,
                     const void *key,
                     size_t length,
                     const struct ebbtide_call *call,
                     struct ebbtide_error **error);

/**
 * Queries and inserts a key in one step: of concurrent callers with the same new key, in any
 * number of processes, exactly one receives EBBTIDE_NEW.
 *
 * Returns EBBTIDE_NEW, EBBTIDE_PRESENT or EBBTIDE_TOO_LATE, or -1 on an error.
 */
int ebbtide_check_and_insert(struct ebbtide_filter *filter,
                             const void *key,
                             size_t length,
                             const struct ebbtide_call *call,
                             struct ebbtide_error **error);

/**
 * Removes a key once, from a filter of a kind that counts. Returns 1, or 0 if the key is not
 * there, so that nothing was changed, or -1 on an error. Remove only keys that were inserted:
 * removing a false positive may make other keys disappear.
 */
int ebbtide_remove(struct ebbtide_filter *filter,
                   const void *key,
                   size_t length,
                   const struct ebbtide_call *call,
                   struct ebbtide_error **error);

/**
 * Queries how long ago a key was seen. Returns 1 and stores a lower bound in *age and its unit
 * (EBBTIDE_ITEMS or EBBTIDE_MICROSECONDS) in *unit, or returns 0 if the key is not in the window,
 * or -1 on an error. age and unit may be NULL; they are written with the answer 1 only.
 */
int ebbtide_age(struct ebbtide_filter *filter,
                const void *key,
                size_t length,
                uint64_t *age,
                uint32_t *unit,
                const struct ebbtide_call *call,
                struct ebbtide_error **error);

/**
 * Queries whether a key was seen within a span that is shorter than the window: the latest amount
 * of insert operations (EBBTIDE_ITEMS) or of microseconds (EBBTIDE_MICROSECONDS), whichever the
 * filter's window is in: the other unit is an error (EBBTIDE_PARAMETER). Returns 1 or 0, or -1 on
 * an error. Never 0 for a key that was, and also 1 for some keys that are slightly older.
 */
int ebbtide_seen_within(struct ebbtide_filter *filter,
                        const void *key,
                        size_t length,
                        uint64_t amount,
                        uint32_t unit,
                        const struct ebbtide_call *call,
                        struct ebbtide_error **error);

/**
 * Counts the distinct keys in the window, for kinds whose cells say how many there are. Stores
 * their estimated number in *keys, its standard error, in keys, in *standard_error, and in *reach
 * how far back they were counted, in the unit of the filter's window: up to one generation further
 * than the window. Each of the three may be NULL. All blocks of the filter are read; the members
 * distinct_keys and distinct_keys_error of ebbtide_stat are of a sample. Returns 0, or -1 on an
 * error.
 */
int ebbtide_distinct(struct ebbtide_filter *filter,
                     double *keys,
                     double *standard_error,
                     uint64_t *reach,
                     const struct ebbtide_call *call,
                     struct ebbtide_error **error);

/**
 * Counts the distinct keys in a part of the window, as ebbtide_distinct: in the latest amount of
 * insert operations (EBBTIDE_ITEMS) or of microseconds (EBBTIDE_MICROSECONDS), as in
 * ebbtide_seen_within. No key of that part is left out; keys that are up to one generation older
 * count too.
 */
int ebbtide_distinct_within(struct ebbtide_filter *filter,
                            uint64_t amount,
                            uint32_t unit,
                            double *keys,
                            double *standard_error,
                            uint64_t *reach,
                            const struct ebbtide_call *call,
                            struct ebbtide_error **error);

/**
 * Estimates how often a key was inserted, less how often it was removed, for kinds that count.
 * Stores the count in *count, for decaying kinds the part of it that remains. Returns 0, or 1 if a
 * counter is saturated, so that the key may have been inserted more often, or -1 on an error.
 */
int ebbtide_estimate(struct ebbtide_filter *filter,
                     const void *key,
                     size_t length,
                     double *count,
                     const struct ebbtide_call *call,
                     struct ebbtide_error **error);

/**
 * Inserts keys in order; they become durable together. Much faster than single inserts if the
 * filter is larger than the processor's caches. If count is 0, keys may be NULL.
 *
 * Returns how many were inserted, which is all except those that were too late, or -1 on an error.
 * The keys before the failing one are inserted then, and nothing says how many: to continue after
 * an error without inserting a key twice, use ebbtide_check_and_insert_all, whose answers tell.
 */
int64_t ebbtide_insert_all(struct ebbtide_filter *filter,
                           const struct ebbtide_key *keys,
                           size_t count,
                           const struct ebbtide_call *call,
                           struct ebbtide_error **error);

/**
 * Queries keys in order and stores for each, in an array of count answers, 1 if it is in the
 * window, otherwise 0. If count is 0, keys and answers may be NULL.
 *
 * Returns 0, or -1 on an error. All answers are EBBTIDE_NO_ANSWER then, unless the arguments were
 * wrong (EBBTIDE_ARGUMENT): then nothing is written.
 */
int ebbtide_contains_all(struct ebbtide_filter *filter,
                         const struct ebbtide_key *keys,
                         size_t count,
                         uint8_t *answers,
                         const struct ebbtide_call *call,
                         struct ebbtide_error **error);

/**
 * Queries and inserts keys in order, each in one step as ebbtide_check_and_insert; they become
 * durable together. Stores EBBTIDE_NEW, EBBTIDE_PRESENT or EBBTIDE_TOO_LATE for each in an array
 * of count answers. If count is 0, keys and answers may be NULL.
 *
 * Returns 0, or -1 on an error. The keys before the failing one have answers and are inserted
 * then; those of the others are EBBTIDE_NO_ANSWER, unless the arguments were wrong
 * (EBBTIDE_ARGUMENT): then nothing is inserted or written.
 */
int ebbtide_check_and_insert_all(struct ebbtide_filter *filter,
                                 const struct ebbtide_key *keys,
                                 size_t count,
                                 uint8_t *answers,
                                 const struct ebbtide_call *call,
                                 struct ebbtide_error **error);

/**
 * Waits until all operations so far are durable. Returns 0, or -1 on an error.
 */
int ebbtide_sync(struct ebbtide_filter *filter, struct ebbtide_error **error);

/**
 * Writes a snapshot, unless the newest one is up to date, and removes log that is no longer
 * needed. Stores the number of the log record at which the newest snapshot starts in *lsn, unless
 * that is NULL; 0 for a filter that has never changed. Returns 0, or -1 on an error.
 */
int ebbtide_checkpoint(struct ebbtide_filter *filter, uint64_t *lsn, struct ebbtide_error **error);

/**
 * Returns a hash of the logical state as 32 hexadecimal digits, as `ebbtide digest` prints it:
 * equal for filters with equal parameters after equal operations at equal times. Writers wait
 * meanwhile. Returns NULL on an error. Release the text with ebbtide_string_free.
 */
char *ebbtide_digest(struct ebbtide_filter *filter, struct ebbtide_error **error);

/**
 * Returns statistics of the filter as one object of JSON, with the members of
 * `ebbtide stat --json`. Returns NULL on an error. Release the text with ebbtide_string_free.
 */
char *ebbtide_stat(struct ebbtide_filter *filter, struct ebbtide_error **error);

/**
 * Returns the code of an error, such as EBBTIDE_LOCKED; 0 for NULL. A later version may return
 * codes that this header does not have.
 */
int ebbtide_error_code(const struct ebbtide_error *error);

/**
 * Returns the message of an error, in UTF-8: a sentence with the file, what was expected, what was
 * found, and the remedy. The text belongs to the error; for NULL it is "no error".
 */
const char *ebbtide_error_message(const struct ebbtide_error *error);

/**
 * Returns the file or directory that an error is about, as the bytes of its name, or NULL if there
 * is none. The text belongs to the error.
 */
const char *ebbtide_error_path(const struct ebbtide_error *error);

/**
 * Releases an error. NULL does nothing.
 */
void ebbtide_error_free(struct ebbtide_error *error);

/**
 * Releases a text from ebbtide_digest, ebbtide_stat or ebbtide_plan, whatever the caller has made
 * of its bytes. NULL does nothing.
 */
void ebbtide_string_free(char *text);

/**
 * Returns the version of the library, such as "0.1.0". The text is never released.
 */
const char *ebbtide_version(void);

/**
 * Returns an empty batch: keys and positions that are written in one atomic step. Nothing of a
 * batch is written, and nobody sees any of it, before ebbtide_batch_commit; after that all of it
 * counts. If the commit fails, or the process dies before it has ended, all or nothing does.
 *
 * A position is a number of a source, such as an offset in a file. After a crash ebbtide_position
 * returns the one that belongs to exactly the keys that the filter remembers.
 *
 * The call has the settings of all operations of the batch. One thread at a time uses a batch.
 * Returns NULL on an error. Release the batch with ebbtide_batch_free before the filter is closed.
 */
struct ebbtide_batch *ebbtide_batch_new(struct ebbtide_filter *filter,
                                        const struct ebbtide_call *call,
                                        struct ebbtide_error **error);

/**
 * Adds the insert of a key of length bytes. Of the call, which may be NULL, time and weight count:
 * they are those of this key. A key that is too late when the batch is committed is left out.
 * Returns 0, or -1 on an error.
 */
int ebbtide_batch_insert(struct ebbtide_batch *batch,
                         const void *key,
                         size_t length,
                         const struct ebbtide_call *call,
                         struct ebbtide_error **error);

/**
 * Adds the insert of a key, and answers whether it is new: as ebbtide_check_and_insert would if
 * each earlier operation of the batch had been a single one. If another caller inserts a new
 * key before the commit, the commit fails with EBBTIDE_CONFLICT.
 *
 * Returns EBBTIDE_NEW, EBBTIDE_PRESENT or EBBTIDE_TOO_LATE, or -1 on an error.
 */
int ebbtide_batch_check_and_insert(struct ebbtide_batch *batch,
                                   const void *key,
                                   size_t length,
                                   const struct ebbtide_call *call,
                                   struct ebbtide_error **error);

/**
 * Sets the position of a source when the batch is committed; the last one counts. A filter keeps
 * the positions of 256 sources. Returns 0, or -1 on an error.
 */
int ebbtide_batch_set_position(struct ebbtide_batch *batch,
                               uint64_t source,
                               uint64_t position,
                               struct ebbtide_error **error);

/**
 * Writes the batch: all of it, or nothing. Afterwards it is empty, and can be filled again.
 *
 * Returns 0, or -1 on an error. After EBBTIDE_CONFLICT and EBBTIDE_LEASE_LOST clear the batch and
 * take the same messages again; after EBBTIDE_WOULD_WAIT the commit may be repeated.
 */
int ebbtide_batch_commit(struct ebbtide_batch *batch, struct ebbtide_error **error);

/**
 * Forgets what a batch holds; it can be filled again. Returns 0, or -1 on an error.
 */
int ebbtide_batch_clear(struct ebbtide_batch *batch, struct ebbtide_error **error);

/**
 * Releases a batch; what was not committed has no effect. NULL does nothing.
 */
void ebbtide_batch_free(struct ebbtide_batch *batch);

/**
 * Reads how far a source was read, as the committed batches say. Returns 1 and stores it in
 * *position, which may be NULL, or returns 0 if the source has none, or -1 on an error.
 */
int ebbtide_position(struct ebbtide_filter *filter,
                     uint64_t source,
                     uint64_t *position,
                     struct ebbtide_error **error);

/**
 * Claims a key for work that may fail, for lease_ms milliseconds, from 1 to 97 days. Of any number
 * of callers in all threads and processes one receives EBBTIDE_YOURS; it works, and then calls
 * ebbtide_confirm, which inserts the key, or ebbtide_release. Nothing is released automatically:
 * what is neither confirmed nor released, nor renewed by ebbtide_extend, ends with its lease.
 *
 * With EBBTIDE_YOURS, *token is the number of the claim, which is greater than that of every
 * earlier one of the filter; any thread or process that knows key and token may continue. With
 * EBBTIDE_IN_PROGRESS, *until_us is when the lease of the other caller ends if it is not renewed,
 * in microseconds since the Unix epoch by the clock as it is now; until_us may be NULL. Otherwise
 * token and until_us are not written. A time of the call is that of the question.
 *
 * Returns EBBTIDE_SEEN, EBBTIDE_YOURS or EBBTIDE_IN_PROGRESS, or -1 on an error, such as
 * EBBTIDE_CLAIMS_FULL: a filter holds up to 65536 claims at a time.
 */
int ebbtide_claim(struct ebbtide_filter *filter,
                  const void *key,
                  size_t length,
                  uint64_t lease_ms,
                  uint64_t *token,
                  uint64_t *until_us,
                  const struct ebbtide_call *call,
                  struct ebbtide_error **error);

/**
 * Inserts a claimed key and ends its claim, both in one atomic step. A time of the call is that of
 * the insert; if it is too late for the window, the claim ends, and the key is not inserted.
 *
 * Returns 0, or -1 on an error. After EBBTIDE_LEASE_LOST the key is not inserted: the lease was
 * over, and somebody else may be working on the key. After EBBTIDE_POISONED it is not known
 * whether it is inserted and the claim has ended: the filter, opened again, says so. After other
 * errors the claim stays, and may be confirmed again.
 */
int ebbtide_confirm(struct ebbtide_filter *filter,
                    const void *key,
                    size_t length,
                    uint64_t token,
                    const struct ebbtide_call *call,
                    struct ebbtide_error **error);

/**
 * Ends a claim without an insert: the key may be claimed again at once. Returns 1, or 0 if the
 * claim was not held any more, so that nothing was changed, or -1 on an error.
 */
int ebbtide_release(struct ebbtide_filter *filter,
                    const void *key,
                    size_t length,
                    uint64_t token,
                    const struct ebbtide_call *call,
                    struct ebbtide_error **error);

/**
 * Renews a claim: its lease ends lease_ms milliseconds after now. Stores when in *until_us, as
 * ebbtide_claim, unless that is NULL. Returns 0, or -1 on an error, such as EBBTIDE_LEASE_LOST.
 */
int ebbtide_extend(struct ebbtide_filter *filter,
                   const void *key,
                   size_t length,
                   uint64_t token,
                   uint64_t lease_ms,
                   uint64_t *until_us,
                   const struct ebbtide_call *call,
                   struct ebbtide_error **error);

/**
 * Ends the claim of a key, whoever holds it, if its holder is known to be gone. Returns 1, or 0 if
 * there was none, or -1 on an error.
 */
int ebbtide_end_claim(struct ebbtide_filter *filter,
                      const void *key,
                      size_t length,
                      const struct ebbtide_call *call,
                      struct ebbtide_error **error);

/**
 * Lists the claims that are held, the oldest first: stores up to room of them in the array claims,
 * which may be NULL if room is 0. Returns how many are held, which may be more than room, or -1 on
 * an error. A filter holds up to 65536.
 */
int64_t ebbtide_claims(struct ebbtide_filter *filter,
                       struct ebbtide_open_claim *claims,
                       size_t room,
                       struct ebbtide_error **error);

/**
 * Adds to a batch the insert of a claimed key, and the end of its claim: as ebbtide_confirm,
 * together with the rest of the batch. Of the call, which may be NULL, the time counts. The claim
 * is the batch's then: one that is cleared or freed releases the key. The claim must be one of the
 * batch's filter: another filter may have given the same token to somebody else.
 *
 * Returns 0, or -1 on an error. Any error other than EBBTIDE_ARGUMENT ends the claim, too: the key
 * is released, and is to be claimed again. Such errors are EBBTIDE_PARAMETER, if the batch has no
 * room, and EBBTIDE_TIME_AHEAD. If the lease is over before the commit, that fails with
 * EBBTIDE_LEASE_LOST, and nothing of the batch is written.
 */
int ebbtide_batch_confirm(struct ebbtide_batch *batch,
                          const void *key,
                          size_t length,
                          uint64_t token,
                          const struct ebbtide_call *call,
                          struct ebbtide_error **error);

/**
 * Removes all keys in one durable step, which all processes see at once. Positions of sources
 * stay: they are of the stream, not of the keys. Returns 0, or -1 on an error.
 */
int ebbtide_clear(struct ebbtide_filter *filter, struct ebbtide_error **error);

/**
 * Copies the filter to a directory that does not exist, while others use it. All operations that
 * had returned are in the copy, which is on the disk when the function returns, and is a filter of
 * its own: open it, or bring it back by ebbtide_restore. Copies of the files of an open filter are
 * none. Returns 0, or -1 on an error.
 */
int ebbtide_backup(struct ebbtide_filter *filter, const char *path, struct ebbtide_error **error);

/**
 * Copies a backup, or any filter that no process has open, to a directory that does not exist. The
 * copy continues the old filter. Returns 0, or -1 on an error.
 */
int ebbtide_restore(const char *backup, const char *path, struct ebbtide_error **error);

/**
 * Returns what a filter of this spec and these options (NULL for the defaults) will take of memory
 * and disk, and its false-positive rate, as one object of JSON, with the members of
 * `ebbtide plan --json`. Nothing is created. Returns NULL on an error. Release the text with
 * ebbtide_string_free.
 */
char *ebbtide_plan(const char *spec, const char *options, struct ebbtide_error **error);

/**
 * Returns a handle for queries to a filter as it was at a moment of its past, from the log that is
 * kept (the option keep-log). The answers are those that the filter gave then: its time stands
 * still at the moment's last operation, and no later one changes them. The state is rebuilt in
 * memory, while others write.
 *
 * Returns NULL on an error, such as EBBTIDE_NOT_KEPT if the log does not have the moment. Close
 * the handle with ebbtide_close.
 */
struct ebbtide_filter *ebbtide_reader_open_at(const char *path,
                                              const struct ebbtide_moment *at,
                                              const char *options,
                                              struct ebbtide_error **error);

/**
 * Makes a filter in a directory that does not exist, which is what another one was at a moment of
 * its past, from the log that is kept (the option keep-log). Others may use that one meanwhile.
 * The new filter continues the old one, as after ebbtide_restore, and keeps no log until it is
 * opened with that option.
 *
 * Stores in *lsn the LSN that the next record of the new filter gets, and in *inserts how many
 * inserts are in its state; both may be NULL. Returns 0, or -1 on an error, such as
 * EBBTIDE_NOT_KEPT.
 */
int ebbtide_restore_at(const char *filter,
                       const struct ebbtide_moment *at,
                       const char *path,
                       uint64_t *lsn,
                       uint64_t *inserts,
                       struct ebbtide_error **error);

/**
 * Opens the log of a filter to read the operations in it one by one, while others write it: from
 * the oldest one that is kept (the option keep-log) if after is NULL, otherwise from the first one
 * that had not happened at that moment. No operation comes twice, and none is left out, whichever
 * processes write, and whether they are killed. flags are EBBTIDE_WITH_UNDURABLE or 0.
 *
 * The filter need not be open in this process. One thread at a time uses a history. In a forked
 * child it returns EBBTIDE_FORKED: open another one there. Returns NULL on an error. Release it
 * with ebbtide_history_close.
 */
struct ebbtide_history *ebbtide_history_open(const char *path,
                                             const struct ebbtide_moment *after,
                                             uint32_t flags,
                                             struct ebbtide_error **error);

/**
 * Reads the next operation. Returns 1, or 0 at the present end of the log: asked again later, it
 * continues with what came since. Returns -1 on an error; then, and with the answer 0, *operation
 * is as it was. EBBTIDE_NOT_KEPT: the log that comes next has been removed meanwhile.
 * EBBTIDE_LOCKED: another process is opening or closing the filter; ask again.
 */
int ebbtide_history_read(struct ebbtide_history *history,
                         struct ebbtide_operation *operation,
                         struct ebbtide_error **error);

/**
 * As ebbtide_history_read, but waits up to timeout_ms milliseconds for an operation to come, also
 * while another process opens or closes the filter. UINT64_MAX: as long as it takes.
 */
int ebbtide_history_wait(struct ebbtide_history *history,
                         uint64_t timeout_ms,
                         struct ebbtide_operation *operation,
                         struct ebbtide_error **error);

/**
 * Stores in *lsn the LSN at which reading continues: all operations below it were returned. A
 * program that is started again continues there with EBBTIDE_AT_LSN of one less; it begins with
 * the first operation of a commit of which only a part was returned. lsn may be NULL. Returns 0,
 * or -1 on an error.
 */
int ebbtide_history_position(struct ebbtide_history *history,
                             uint64_t *lsn,
                             struct ebbtide_error **error);

/**
 * Releases a history. NULL does nothing.
 */
void ebbtide_history_close(struct ebbtide_history *history);

/**
 * Stores in *hash the hash by which the log and ebbtide_claims name a key of length bytes. It
 * depends on the filter's secret seed: do not show it to those who could choose keys by it.
 * Returns 0, or -1 on an error.
 */
int ebbtide_key_hash(struct ebbtide_filter *filter,
                     const void *key,
                     size_t length,
                     uint64_t *hash,
                     struct ebbtide_error **error);

/**
 * Gives a filter another window, rate, capacity or kind, while this and other processes use it.
 * Afterwards it answers as a filter of this spec that has had all operations in its log (the
 * option keep-log). Parameters that the spec does not name have their defaults. Others write
 * meanwhile, and wait at the end for about two seconds for each GiB of the filter; their handles
 * and batches continue with the filter as it is now. Kinds with importances cannot be altered.
 *
 * flags are EBBTIDE_FORGET or 0. altered may be NULL; it is written with the answer 0 only.
 *
 * Returns 0, or -1 on an error: EBBTIDE_NOT_KEPT if keys in the new window would be forgotten,
 * EBBTIDE_LOCKED while another handle alters the filter, EBBTIDE_PARAMETER, EBBTIDE_MISMATCH for
 * importances, EBBTIDE_FULL_DISK; EBBTIDE_IO, also if this process cannot have the memory that the
 * altered filter takes, see ebbtide_plan_alteration. The filter is as it was then, or, if the
 * error came at the very end, altered.
 */
int ebbtide_alter(struct ebbtide_filter *filter,
                  const char *spec,
                  uint32_t flags,
                  struct ebbtide_altered *altered,
                  struct ebbtide_error **error);

/**
 * Stores what ebbtide_alter would take for the filter in a directory, with this spec. Changes
 * nothing, also while the filter is in use. Returns 0, or -1 on an error.
 */
int ebbtide_plan_alteration(const char *path,
                            const char *spec,
                            struct ebbtide_alteration_plan *plan,
                            struct ebbtide_error **error);

/**
 * Makes a filter in a directory that does not exist from the logs of count others: it answers as
 * one of this spec and these options (NULL for the defaults) that has had all of their operations,
 * in the order of their times, since the beginning of their logs (the option keep-log). Of one
 * filter it is the same with other parameters, of several with one hash-seed their union. shares 0
 * takes all keys; otherwise the keys are divided into this number of equal shares by their hash,
 * and the new filter has those of one: share is its number, from 0.
 *
 * The filters may be in use; what they do after the end of their logs was read is not there.
 * Claims are left out. Durability, downtime and max-lead are those of the first filter, unless the
 * options say otherwise. remade may be NULL; it is written with the answer 0 only.
 *
 * Returns 0, or -1 on an error, such as EBBTIDE_MISMATCH if the filters differ in the hash of
 * keys; then there is no new filter, unless the error is EBBTIDE_IO and came at the very end, when
 * the directory above was synced: then it is there, and may be gone after a power cut.
 */
int ebbtide_remake(const char *const *filters,
                   size_t count,
                   const char *path,
                   const char *spec,
                   const char *options,
                   uint64_t share,
                   uint64_t shares,
                   struct ebbtide_remade *remade,
                   struct ebbtide_error **error);

/**
 * Stores in *share the number of the share that a key hash belongs to, from ebbtide_key_hash or of
 * an operation, if all keys are divided into shares equal ones. Returns 0, or -1 on an error.
 */
int ebbtide_share_of(uint64_t hash, uint64_t shares, uint64_t *share, struct ebbtide_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* EBBTIDE_H */
