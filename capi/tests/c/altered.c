/* Other parameters for filters in use, and filters made of the logs of others. */
#include "check.h"

#include <pthread.h>
#include <sys/stat.h>

static const char *const NARROW = "fingerprint last=100 fpr=1e-9";
static const char *const WIDE = "fingerprint last=100000 fpr=1e-9";

static struct ebbtide_filter *created(const char *path, const char *options) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = ebbtide_create(path, NARROW, options, &error);
    CHECK_CODE(error, 0);
    return seen;
}

static void insert(struct ebbtide_filter *seen, int begin, int end) {
    struct ebbtide_error *error = NULL;
    for (int key = begin; key < end; key++) {
        CHECK(ebbtide_insert(seen, &key, sizeof key, NULL, &error) == 1);
        CHECK_CODE(error, 0);
    }
}

static int found(struct ebbtide_filter *seen, int begin, int end) {
    struct ebbtide_error *error = NULL;
    int count = 0;
    for (int key = begin; key < end; key++) {
        count += ebbtide_contains(seen, &key, sizeof key, NULL, &error);
        CHECK_CODE(error, 0);
    }
    return count;
}

static struct ebbtide_alteration_plan planned(const char *path, const char *spec) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_alteration_plan plan;
    plan.size = sizeof plan;
    CHECK(ebbtide_plan_alteration(path, spec, &plan, &error) == 0);
    CHECK_CODE(error, 0);
    return plan;
}

/* A filter that has had more than its log has. */
static void outlived(const char *path) {
    struct ebbtide_error *error = NULL;
    ebbtide_close(created(path, "segment-bytes=4096"), &error);
    for (int run = 0; run < 4; run++) {
        struct ebbtide_filter *seen = ebbtide_open_existing(path, NULL, &error);
        CHECK_CODE(error, 0);
        insert(seen, run * 1000, run * 1000 + 1000);
        CHECK(ebbtide_checkpoint(seen, NULL, &error) == 0);
        CHECK(ebbtide_close(seen, &error) == 0);
    }
    CHECK_CODE(error, 0);
}

/* All handles continue with the altered filter, and the past has the former one. */
static void in_use(const char *directory) {
    struct ebbtide_error *error = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s", at(directory, "in-use"));
    struct ebbtide_filter *seen = created(path, "keep-log=24h");
    struct ebbtide_filter *second = ebbtide_open_existing(path, NULL, &error);
    struct ebbtide_filter *reader = ebbtide_reader_open(path, NULL, &error);
    CHECK_CODE(error, 0);
    insert(seen, 0, 1000);
    CHECK(found(seen, 0, 500) == 0);
    struct ebbtide_alteration_plan plan = planned(path, WIDE);
    CHECK(plan.has_window == 1 && plan.has_since == 1 && plan.first_lsn == 1);
    CHECK(plan.records >= 1000 && plan.memory_after > plan.memory_before);
    CHECK(found(seen, 0, 500) == 0);
    struct ebbtide_altered altered;
    altered.size = sizeof altered;
    CHECK(ebbtide_alter(seen, WIDE, 0, &altered, &error) == 0);
    CHECK_CODE(error, 0);
    CHECK(altered.operations == 1000 && altered.is_whole == 1 && altered.stopped_us > 0);
    CHECK(altered.has_since == 1 && altered.since_us == plan.since_us && altered.lsn > 1000);
    CHECK(found(seen, 0, 1000) == 1000);
    insert(second, 1000, 1001);
    CHECK(found(second, 0, 1001) == 1001 && found(reader, 0, 1001) == 1001);
    CHECK(planned(path, NARROW).memory_before == plan.memory_after);
    struct ebbtide_moment before;
    memset(&before, 0, sizeof before);
    before.at = EBBTIDE_AT_LSN;
    before.number = altered.lsn - 1;
    struct ebbtide_filter *then = ebbtide_reader_open_at(path, &before, NULL, &error);
    CHECK_CODE(error, 0);
    CHECK(found(then, 0, 500) == 0 && found(then, 950, 1000) == 50);
    CHECK(ebbtide_close(then, &error) == 0);
    /* Another kind; nobody wants to know how. */
    CHECK(ebbtide_alter(second, "age-partitioned last=100000 fpr=1e-9", 0, NULL, &error) == 0);
    CHECK_CODE(error, 0);
    CHECK(found(seen, 0, 1001) == 1001);
    CHECK(ebbtide_alter(reader, WIDE, 0, &altered, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_UNSUPPORTED, "alter");
    CHECK(ebbtide_close(reader, &error) == 0);
    CHECK(ebbtide_close(second, &error) == 0);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK(ebbtide_open(path, WIDE, NULL, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_MISMATCH);
}

static void forgotten(const char *directory) {
    struct ebbtide_error *error = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s", at(directory, "forgotten"));
    outlived(path);
    struct ebbtide_filter *seen = ebbtide_open_existing(path, NULL, &error);
    CHECK(planned(path, WIDE).has_window == 0);
    struct ebbtide_altered altered;
    memset(&altered, 77, sizeof altered);
    altered.size = sizeof altered;
    CHECK(ebbtide_alter(seen, WIDE, 0, &altered, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_NOT_KEPT, "new window");
    CHECK(altered.lsn == UINT64_C(0x4d4d4d4d4d4d4d4d));
    CHECK(found(seen, 3950, 4000) == 50 && found(seen, 0, 100) == 0);
    CHECK(ebbtide_alter(seen, WIDE, EBBTIDE_FORGET, &altered, &error) == 0);
    CHECK_CODE(error, 0);
    CHECK(altered.is_whole == 0 && altered.operations > 0 && altered.operations < 4000);
    CHECK(found(seen, 3950, 4000) == 50 && found(seen, 0, 100) == 0);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

static int writing;

/* Few enough that the test ends on a busy machine, too. */
enum { MOST = 30000 };

static void *write_meanwhile(void *filter) {
    int key = 0;
    while (__atomic_load_n(&writing, __ATOMIC_ACQUIRE) && key < MOST) {
        insert((struct ebbtide_filter *)filter, key, key + 1);
        key++;
    }
    insert((struct ebbtide_filter *)filter, key, key + 1);
    return (void *)(intptr_t)(key + 1);
}

static void meanwhile(const char *directory) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = created(at(directory, "meanwhile"), "keep-log=24h");
    struct ebbtide_altered altered;
    altered.size = sizeof altered;
    pthread_t writer;
    __atomic_store_n(&writing, 1, __ATOMIC_RELEASE);
    CHECK(pthread_create(&writer, NULL, write_meanwhile, seen) == 0);
    CHECK(ebbtide_alter(seen, "fingerprint last=5M fpr=1e-9", 0, &altered, &error) == 0);
    CHECK(ebbtide_alter(seen, "fingerprint last=4M fpr=1e-9", 0, &altered, &error) == 0);
    CHECK_CODE(error, 0);
    __atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
    void *count = NULL;
    CHECK(pthread_join(writer, &count) == 0);
    CHECK(found(seen, 0, (int)(intptr_t)count) == (int)(intptr_t)count);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
}

/* The union of two filters, and its division in three. */
static void made(const char *directory) {
    struct ebbtide_error *error = NULL;
    char a[4096], b[4096], all[4096], part[4200];
    snprintf(a, sizeof a, "%s", at(directory, "a"));
    snprintf(b, sizeof b, "%s", at(directory, "b"));
    snprintf(all, sizeof all, "%s", at(directory, "all"));
    const char *const paths[] = {a, b}, *const one[] = {all};
    struct ebbtide_filter *filters[2];
    for (int i = 0; i < 2; i++) {
        filters[i] = created(paths[i], "keep-log=24h hash-seed=7");
        insert(filters[i], i * 300, i * 300 + 300);
    }
    struct ebbtide_remade remade;
    remade.size = sizeof remade;
    CHECK(ebbtide_remake(paths, 2, all, WIDE, "keep-log=24h", 0, 0, &remade, &error) == 0);
    CHECK_CODE(error, 0);
    CHECK(remade.operations == 600 && remade.is_whole == 1 && remade.has_since == 1);
    struct ebbtide_filter *seen = ebbtide_open_existing(all, NULL, &error);
    CHECK(found(seen, 0, 600) == 600);
    int shares[3] = {0, 0, 0};
    for (int key = 0; key < 600; key++) {
        uint64_t hash = 0, share = 77;
        CHECK(ebbtide_key_hash(seen, &key, sizeof key, &hash, &error) == 0);
        CHECK(ebbtide_share_of(hash, 3, &share, &error) == 0);
        CHECK_CODE(error, 0);
        CHECK(share < 3);
        shares[share]++;
    }
    for (uint64_t share = 0; share < 3; share++) {
        snprintf(part, sizeof part, "%s-%d", all, (int)share);
        CHECK(ebbtide_remake(one, 1, part, WIDE, NULL, share, 3, &remade, &error) == 0);
        CHECK_CODE(error, 0);
        CHECK(remade.operations == (uint64_t)shares[share] && shares[share] > 100);
        struct ebbtide_filter *own = ebbtide_reader_open(part, NULL, &error);
        CHECK(found(own, 0, 600) >= shares[share]);
        CHECK(ebbtide_close(own, &error) == 0);
    }
    CHECK(ebbtide_remake(one, 1, part, WIDE, NULL, 0, 0, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_EXISTS);
    CHECK(ebbtide_close(seen, &error) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(ebbtide_close(filters[i], &error) == 0);
    }
    CHECK_CODE(error, 0);
}

static void wrong_filters(const char *path, const char *new_path) {
    struct ebbtide_error *error = NULL;
    struct stat there;
    const char *const paths[] = {path, NULL};
    struct ebbtide_remade remade;
    remade.size = 5;
    CHECK(ebbtide_remake(paths, 1, new_path, WIDE, NULL, 0, 0, &remade, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "sizeof(struct ebbtide_remade)");
    CHECK(ebbtide_remake(NULL, 1, new_path, WIDE, NULL, 0, 0, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the paths");
    CHECK(ebbtide_remake(paths, SIZE_MAX, new_path, WIDE, NULL, 0, 0, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the paths");
    CHECK(ebbtide_remake(paths, 2, new_path, WIDE, NULL, 0, 0, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the path is NULL");
    CHECK(ebbtide_remake(NULL, 0, new_path, WIDE, NULL, 0, 0, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_PARAMETER, "at least one");
    CHECK(ebbtide_remake(paths, 1, NULL, WIDE, NULL, 0, 0, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_remake(paths, 1, new_path, NULL, NULL, 0, 0, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_remake(paths, 1, new_path, WIDE, "colour=red", 0, 0, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_PARAMETER);
    CHECK(ebbtide_remake(paths, 1, new_path, WIDE, NULL, 1, 0, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "shares is 0");
    CHECK(ebbtide_remake(paths, 1, new_path, WIDE, NULL, 3, 3, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_PARAMETER, "share");
    CHECK(stat(new_path, &there) == -1);
    CHECK(ebbtide_share_of(17, 0, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "found 0");
    CHECK(ebbtide_share_of(17, 1, NULL, &error) == 0);
}

static void wrong(const char *directory) {
    struct ebbtide_error *error = NULL;
    char path[4096], new_path[4096];
    snprintf(path, sizeof path, "%s", at(directory, "wrong"));
    snprintf(new_path, sizeof new_path, "%s", at(directory, "wrong-new"));
    struct ebbtide_filter *seen = created(path, "keep-log=24h");
    insert(seen, 0, 1);
    struct ebbtide_altered altered;
    altered.size = 40;
    CHECK(ebbtide_alter(seen, WIDE, 0, &altered, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "sizeof(struct ebbtide_altered), 48");
    CHECK(ebbtide_alter(NULL, WIDE, 0, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the filter is NULL");
    CHECK(ebbtide_alter(seen, NULL, 0, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "the spec is NULL");
    CHECK(ebbtide_alter(seen, WIDE, 2, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "0x2");
    const char *const specs[] = {"fingerprint last=100 fpr=2", "no-kind last=100", "bloom"};
    struct ebbtide_alteration_plan plan;
    plan.size = sizeof plan;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        CHECK(ebbtide_alter(seen, specs[i], 0, NULL, &error) == -1);
        CHECK_CODE(error, EBBTIDE_PARAMETER);
        CHECK(ebbtide_plan_alteration(path, specs[i], &plan, &error) == -1);
        CHECK_CODE(error, EBBTIDE_PARAMETER);
    }
    CHECK(ebbtide_plan_alteration(path, WIDE, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_ARGUMENT, "struct ebbtide_alteration_plan is NULL");
    CHECK(ebbtide_plan_alteration(NULL, WIDE, &plan, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_plan_alteration(path, NULL, &plan, &error) == -1);
    CHECK_CODE(error, EBBTIDE_ARGUMENT);
    CHECK(ebbtide_plan_alteration(new_path, WIDE, &plan, &error) == -1);
    CHECK_CODE(error, EBBTIDE_NOT_A_FILTER);
    wrong_filters(path, new_path);
    CHECK(found(seen, 0, 1) == 1);
    CHECK(ebbtide_close(seen, &error) == 0);
    seen = ebbtide_open(path, NARROW, NULL, &error);
    CHECK_CODE(error, 0);
    CHECK(ebbtide_close(seen, &error) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *directory = arguments[1];
    in_use(directory);
    forgotten(directory);
    meanwhile(directory);
    made(directory);
    wrong(directory);
    puts("passed");
    return 0;
}
