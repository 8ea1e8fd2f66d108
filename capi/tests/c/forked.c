/* A handle that a child inherits returns EBBTIDE_FORKED there; the child opens the filter anew.
 * Claims stay the parent's, except one whose token the child uses with a handle of its own. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static const uint64_t MINUTE = 60000;

/* The claims of the keys "kept" and "given" by the parent. */
struct claims {
    uint64_t kept;
    uint64_t given;
};

static void claims_in_child(struct ebbtide_filter *inherited, const struct claims *claims) {
    struct ebbtide_error *error = NULL;
    uint64_t token = 77;
    CHECK(ebbtide_confirm(inherited, "kept", 4, claims->kept, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_FORKED);
    CHECK(ebbtide_release(inherited, "kept", 4, claims->kept, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_FORKED);
    CHECK(ebbtide_extend(inherited, "kept", 4, claims->kept, MINUTE, NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_FORKED);
    CHECK(ebbtide_end_claim(inherited, "kept", 4, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_FORKED);
    CHECK(ebbtide_claim(inherited, "c", 1, MINUTE, &token, NULL, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_FORKED);
    CHECK(token == 77);
}

/* A history that the parent has opened, and has read from; the child's own begins anew. */
static void history_in_child(struct ebbtide_history *inherited, const char *path) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_operation operation;
    operation.size = sizeof operation;
    CHECK(ebbtide_history_read(inherited, &operation, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_FORKED, "before this process was forked");
    CHECK(ebbtide_history_wait(inherited, 1, &operation, &error) == -1);
    CHECK_CODE(error, EBBTIDE_FORKED);
    ebbtide_history_close(inherited);
    struct ebbtide_history *own = ebbtide_history_open(path, NULL, EBBTIDE_WITH_UNDURABLE, &error);
    CHECK_CODE(error, 0);
    CHECK(ebbtide_history_read(own, &operation, &error) == 1);
    CHECK(operation.kind == EBBTIDE_OPERATION_INSERT);
    ebbtide_history_close(own);
}

/* What the child does with the handle of its parent, and with its own. */
static void child(struct ebbtide_filter *inherited, const char *path, const struct claims *claims) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_key key = {"a", 1};
    uint8_t answer = 77;
    CHECK(ebbtide_insert(inherited, "child", 5, NULL, &error) == -1);
    CHECK_ERROR(error, EBBTIDE_FORKED, "forked");
    CHECK(ebbtide_contains(inherited, "a", 1, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_FORKED);
    CHECK(ebbtide_contains_all(inherited, &key, 1, &answer, NULL, &error) == -1);
    CHECK_CODE(error, EBBTIDE_FORKED);
    CHECK(answer == EBBTIDE_NO_ANSWER);
    CHECK(ebbtide_sync(inherited, &error) == -1);
    CHECK_CODE(error, EBBTIDE_FORKED);
    CHECK(ebbtide_digest(inherited, &error) == NULL);
    CHECK_CODE(error, EBBTIDE_FORKED);
    claims_in_child(inherited, claims);
    /* Releases memory only: the filter remains the parent's, with or without an error. */
    ebbtide_close(inherited, &error);
    ebbtide_error_free(error);
    error = NULL;
    struct ebbtide_filter *own = ebbtide_open_existing(path, NULL, &error);
    CHECK_CODE(error, 0);
    CHECK(ebbtide_contains(own, "a", 1, NULL, &error) == 1);
    CHECK(ebbtide_check_and_insert(own, "child", 5, NULL, &error) == EBBTIDE_NEW);
    uint64_t token = 77;
    CHECK(ebbtide_claim(own, "kept", 4, MINUTE, &token, NULL, NULL, &error) ==
          EBBTIDE_IN_PROGRESS);
    CHECK(ebbtide_confirm(own, "given", 5, claims->given, NULL, &error) == 0);
    CHECK(ebbtide_close(own, &error) == 0);
    CHECK_CODE(error, 0);
}

/* Under the address sanitizer the parent has no other threads: one that allocates at the moment of
 * the fork leaves a lock of the sanitizer held in the child for good. */
#ifdef __SANITIZE_ADDRESS__
static const char *const OPTIONS = "background=off";
#else
static const char *const OPTIONS = NULL;
#endif

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *path = at(arguments[1], "forked");
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = ebbtide_create(path, "bloom capacity=1000", OPTIONS, &error);
    CHECK_CODE(error, 0);
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, NULL, &error);
    CHECK(ebbtide_batch_insert(batch, "a", 1, NULL, &error) == 0);
    CHECK(ebbtide_batch_insert(batch, "second", 6, NULL, &error) == 0);
    CHECK(ebbtide_batch_commit(batch, &error) == 0);
    ebbtide_batch_free(batch);
    struct claims claims = {0, 0};
    CHECK(ebbtide_claim(seen, "kept", 4, MINUTE, &claims.kept, NULL, NULL, &error) ==
          EBBTIDE_YOURS);
    CHECK(ebbtide_claim(seen, "given", 5, MINUTE, &claims.given, NULL, NULL, &error) ==
          EBBTIDE_YOURS);
    struct ebbtide_history *log = ebbtide_history_open(path, NULL, EBBTIDE_WITH_UNDURABLE, &error);
    struct ebbtide_operation operation;
    operation.size = sizeof operation;
    CHECK(ebbtide_history_read(log, &operation, &error) == 1);
    pid_t forked = fork();
    CHECK(forked >= 0);
    if (forked == 0) {
        history_in_child(log, path);
        child(seen, path, &claims);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(forked, &status, 0) == forked);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ebbtide_contains(seen, "child", 5, NULL, &error) == 1);
    CHECK(ebbtide_confirm(seen, "kept", 4, claims.kept, NULL, &error) == 0);
    CHECK(ebbtide_contains(seen, "given", 5, NULL, &error) == 1);
    CHECK(ebbtide_insert(seen, "b", 1, NULL, &error) == 1);
    /* The parent's continues: after the first operation of the batch come its second one, and the
     * two claims. */
    CHECK(ebbtide_history_read(log, &operation, &error) == 1);
    CHECK(operation.kind == EBBTIDE_OPERATION_INSERT);
    for (int number = 0; number < 2; number++) {
        CHECK(ebbtide_history_read(log, &operation, &error) == 1);
        CHECK(operation.kind == EBBTIDE_OPERATION_CLAIM);
    }
    ebbtide_history_close(log);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
    puts("passed");
    return 0;
}
