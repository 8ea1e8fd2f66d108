/* Writes each line of a file exactly once, however often it is killed: consumer DIRECTORY INPUT
 * OUTPUT. */
#include "check.h"

#include <fcntl.h>
#include <unistd.h>

enum { INPUT, OUTPUT };

int main(int count, char **arguments) {
    CHECK(count == 4);
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = ebbtide_open(arguments[1], "fingerprint last=100k fpr=0.000001",
                                               "hash-seed=7", &error);
    CHECK_CODE(error, 0);
    FILE *input = fopen(arguments[2], "r");
    int output = open(arguments[3], O_RDWR | O_CREAT, 0600);
    CHECK(input != NULL && output >= 0);
    uint64_t start = 0, length = 0;
    CHECK(ebbtide_position(seen, INPUT, &start, &error) >= 0);
    CHECK(ebbtide_position(seen, OUTPUT, &length, &error) >= 0);
    CHECK(fseek(input, (long)start, SEEK_SET) == 0 && ftruncate(output, (off_t)length) == 0);
    struct ebbtide_batch *batch = ebbtide_batch_new(seen, NULL, &error);
    char line[256];
    int more = 1;
    while (more) {
        for (int lines = 0; lines < 20 && more; lines++) {
            more = fgets(line, sizeof line, input) != NULL;
            size_t bytes = more ? strlen(line) : 0;
            if (more && ebbtide_batch_check_and_insert(batch, line, bytes, NULL, &error) ==
                            EBBTIDE_NEW) {
                CHECK(pwrite(output, line, bytes, (off_t)length) == (ssize_t)bytes);
                length += bytes;
            }
        }
        CHECK(ebbtide_batch_set_position(batch, INPUT, (uint64_t)ftell(input), &error) == 0);
        CHECK(ebbtide_batch_set_position(batch, OUTPUT, length, &error) == 0);
        CHECK(ebbtide_batch_commit(batch, &error) == 0);
    }
    ebbtide_batch_free(batch);
    CHECK(ebbtide_close(seen, &error) == 0);
    CHECK_CODE(error, 0);
    CHECK(fclose(input) == 0 && close(output) == 0);
    return 0;
}
