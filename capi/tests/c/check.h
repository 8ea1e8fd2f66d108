/* What the test programs share. They are C11 and C++17 at the same time. */
#ifndef CHECK_H
#define CHECK_H

#include "ebbtide.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless the condition holds. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Ends the program unless the error has this code, and releases it. 0: there is none. */
#define CHECK_CODE(error, code) check_code(__FILE__, __LINE__, &(error), code, "")

/* Also looks for a part of the message. */
#define CHECK_ERROR(error, code, part) check_code(__FILE__, __LINE__, &(error), code, part)

static inline void check_code(const char *file, int line, struct ebbtide_error **error, int code,
                              const char *part) {
    const char *message = ebbtide_error_message(*error);
    if (ebbtide_error_code(*error) != code || strstr(message, part) == NULL) {
        fprintf(stderr, "%s:%d: expected code %d and \"%s\", found %d: %s\n", file, line, code,
                part, ebbtide_error_code(*error), message);
        exit(1);
    }
    ebbtide_error_free(*error);
    *error = NULL;
}

/* The path of a filter in the directory of the test; it is valid until the next call. */
static inline const char *at(const char *directory, const char *name) {
    static char path[4096];
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    CHECK(length > 0 && (size_t)length < sizeof path);
    return path;
}

#endif
