/* Does one thing with a filter that others use too: worker DIRECTORY ACTION [PREFIX COUNT].
 *
 * insert and contains take the keys PREFIX0, PREFIX1 and further; contains fails if one is missing.
 * stream inserts keys without end, one of COUNT more each time that it prints how many there are.
 * digest and stat print; plan prints that of the spec in the place of DIRECTORY. */
#include "check.h"

static int key_of(char *key, size_t size, const char *prefix, unsigned long number) {
    int length = snprintf(key, size, "%s%lu", prefix, number);
    CHECK(length > 0 && (size_t)length < size);
    return length;
}

int main(int count, char **arguments) {
    CHECK(count == 3 || count == 5);
    const char *path = arguments[1], *action = arguments[2];
    const char *prefix = count == 5 ? arguments[3] : "";
    unsigned long keys = count == 5 ? strtoul(arguments[4], NULL, 10) : 0;
    struct ebbtide_error *error = NULL;
    if (strcmp(action, "plan") == 0) {
        char *plan = ebbtide_plan(path, NULL, &error);
        CHECK_CODE(error, 0);
        puts(plan);
        ebbtide_string_free(plan);
        return 0;
    }
    int reads = strcmp(action, "digest") == 0 || strcmp(action, "stat") == 0;
    struct ebbtide_filter *seen =
        reads ? ebbtide_reader_open(path, NULL, &error) : ebbtide_open_existing(path, NULL, &error);
    CHECK_CODE(error, 0);
    char key[64];
    if (strcmp(action, "digest") == 0) {
        char *digest = ebbtide_digest(seen, &error);
        CHECK_CODE(error, 0);
        puts(digest);
        ebbtide_string_free(digest);
    } else if (strcmp(action, "stat") == 0) {
        char *stat = ebbtide_stat(seen, &error);
        CHECK_CODE(error, 0);
        puts(stat);
        ebbtide_string_free(stat);
    } else if (strcmp(action, "insert") == 0) {
        for (unsigned long i = 0; i < keys; i++) {
            int length = key_of(key, sizeof key, prefix, i);
            CHECK(ebbtide_insert(seen, key, (size_t)length, NULL, &error) == 1);
        }
    } else if (strcmp(action, "contains") == 0) {
        for (unsigned long i = 0; i < keys; i++) {
            int length = key_of(key, sizeof key, prefix, i);
            CHECK(ebbtide_contains(seen, key, (size_t)length, NULL, &error) == 1);
        }
    } else if (strcmp(action, "stream") == 0) {
        for (unsigned long i = 0;; i++) {
            if (i % keys == 0) {
                printf("%lu\n", i);
                CHECK(fflush(stdout) == 0);
            }
            int length = key_of(key, sizeof key, prefix, i);
            CHECK(ebbtide_insert(seen, key, (size_t)length, NULL, &error) == 1);
        }
    } else {
        CHECK(!"an action");
    }
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
    return 0;
}
