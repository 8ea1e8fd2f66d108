#include <ebbtide.h>
#include <stdio.h>
#include <string.h>

/* Prints the lines of the input, of up to 64 KiB, that were not there in the last ten minutes,
   over all runs. */
int main(void) {
    struct ebbtide_error *error = NULL;
    struct ebbtide_filter *seen = ebbtide_open("seen", "fingerprint window=10m fpr=0.001",
                                               "durability=1s", &error);
    static char line[65536];
    while (error == NULL && fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (ebbtide_check_and_insert(seen, line, strlen(line), NULL, &error) == EBBTIDE_NEW) {
            puts(line);
        }
    }
    /* Only the first error is stored: closing does not overwrite it. */
    ebbtide_close(seen, error == NULL ? &error : NULL);
    if (error == NULL) return 0;
    fprintf(stderr, "error %d: %s\n", ebbtide_error_code(error), ebbtide_error_message(error));
    ebbtide_error_free(error);
    return 1;
}
