/* SPDX-License-Identifier: Apache-2.0
 *
 * A fuzzer without libFuzzer: PROGRAM COUNT SEED FILE... tries each file as it is, and then COUNT inputs
 * drawn from them: bytes changed, cut out, doubled, set to what lengths and counts must not be, or another
 * file's behind them, or a frame made longer or shorter. The same seed draws the same inputs. An input that
 * fails is left in the file `failing`.
 *
 * The first byte of an input says who reads the rest: `reader + FUZZ_READERS * variant`. The rest is frames,
 * each of which begins with its size (32 bits). Whoever includes this defines FUZZ_READERS,
 * LLVMFuzzerTestOneInput(), and counts in `fuzz_understood` and `fuzz_refused`.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FUZZ_LONGEST = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
static uint64_t fuzz_understood, fuzz_refused;
static void fuzz_keep(void);

#define FUZZ_CHECK(condition)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            fuzz_keep();                                                                                     \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* xorshift64*; the state is never 0. */
static inline uint64_t fuzz_draw(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545F4914F6CDD1D);
}

#ifdef FUZZ_MAIN
void __sanitizer_set_death_callback(void (*callback)(void));

struct fuzz_input {
    size_t size;
    uint8_t data[FUZZ_LONGEST];
};

static struct fuzz_input *fuzz_seeds;
static const struct fuzz_input *fuzz_trying;
static size_t fuzz_seed_count;

static void fuzz_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    fuzz_seeds = realloc(fuzz_seeds, (fuzz_seed_count + 1) * sizeof *fuzz_seeds);
    struct fuzz_input *input = &fuzz_seeds[fuzz_seed_count++];
    input->size = fread(input->data, 1, sizeof input->data, file);
    fclose(file);
}

static void fuzz_cut_out(struct fuzz_input *input, size_t place, size_t length) {
    if (length > input->size - place) length = input->size - place;
    memmove(input->data + place, input->data + place + length, input->size - place - length);
    input->size -= length;
}

static void fuzz_append(struct fuzz_input *input, const uint8_t *data, size_t size) {
    if (size > FUZZ_LONGEST - input->size) size = FUZZ_LONGEST - input->size;
    memmove(input->data + input->size, data, size);
    input->size += size;
}

/* Makes a frame longer or shorter by 8 bytes, with all behind it where it belongs. */
static void fuzz_resize(struct fuzz_input *input, uint64_t drawn) {
    size_t place = 1;
    uint32_t size;
    for (uint64_t skip = drawn % 8;; skip--) {
        if (input->size - place < sizeof size) return;
        memcpy(&size, input->data + place, sizeof size);
        if (size < 2 * sizeof(uint64_t) || size > input->size - place) return;
        if (skip == 0) break;
        place += size;
    }
    uint8_t *end = input->data + place + size;
    bool grows = drawn & 8 && input->size <= FUZZ_LONGEST - sizeof(uint64_t);
    if (grows) memmove(end + sizeof(uint64_t), end, (size_t)(input->data + input->size - end));
    input->size += grows ? sizeof(uint64_t) : 0;
    if (!grows) fuzz_cut_out(input, place + size - sizeof(uint64_t), sizeof(uint64_t));
    size = grows ? size + (uint32_t)sizeof(uint64_t) : size - (uint32_t)sizeof(uint64_t);
    memcpy(input->data + place, &size, sizeof size);
}

static void fuzz_change(struct fuzz_input *input, uint64_t *state) {
    static const uint8_t extremes[] = {0, 0xff, 0x7f, 1};
    uint64_t drawn = fuzz_draw(state);
    size_t place = 1 + (drawn >> 32) % (input->size - 1), length = (size_t)1 << (drawn & 3);
    const struct fuzz_input *other = &fuzz_seeds[(drawn >> 8) % fuzz_seed_count];
    if (length > input->size - place) length = input->size - place;
    switch ((drawn >> 4) % 8) {
    case 0:
        drawn = fuzz_draw(state);
        memcpy(input->data + place, &drawn, length);
        break;
    case 1:
        memset(input->data + place, extremes[(drawn >> 24) & 3], length);
        break;
    case 2:
        input->data[place] ^= (uint8_t)(1u << ((drawn >> 24) & 7));
        break;
    case 3:
        fuzz_cut_out(input, place, (drawn >> 24) % 64);
        break;
    case 4:
        fuzz_append(input, input->data + place, input->size - place);
        break;
    case 5:
    case 6:
        fuzz_resize(input, drawn >> 24);
        break;
    default:
        if (other->size > 1) fuzz_append(input, other->data + 1, other->size - 1);
    }
}

static void fuzz_make(struct fuzz_input *input, uint64_t *state) {
    uint64_t drawn = fuzz_draw(state);
    const struct fuzz_input *seed = &fuzz_seeds[(drawn >> 8) % fuzz_seed_count];
    input->size = seed->size;
    memcpy(input->data, seed->data, seed->size);
    if (drawn & 1)
        input->data[0] =
            (uint8_t)(input->data[0] % FUZZ_READERS + FUZZ_READERS * ((drawn >> 40) % (256 / FUZZ_READERS)));
    for (uint64_t left = (drawn >> 4) % 4; left > 0 && input->size > 1; left--) fuzz_change(input, state);
}

static void fuzz_try(const struct fuzz_input *input) {
    fuzz_trying = input;
    LLVMFuzzerTestOneInput(input->data, input->size);
}

static void fuzz_keep(void) {
    if (!fuzz_trying) return;
    int file = open("failing", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0 || write(file, fuzz_trying->data, fuzz_trying->size) < 0) perror("failing");
}

static int fuzz_descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

int main(int count, char **words) {
    struct fuzz_input input;
    if (count < 4) return 2;
    __sanitizer_set_death_callback(fuzz_keep);
    for (int index = 3; index < count; index++) fuzz_read(words[index]);
    for (size_t index = 0; index < fuzz_seed_count; index++) fuzz_try(&fuzz_seeds[index]);
    int descriptors = fuzz_descriptors();
    uint64_t state = strtoull(words[2], NULL, 10) * 2 + 1;
    for (uint64_t left = strtoull(words[1], NULL, 10); left > 0; left--) {
        fuzz_make(&input, &state);
        fuzz_try(&input);
    }
    FUZZ_CHECK(fuzz_descriptors() <=
               descriptors + 1); /* the last that came may be kept until the next frame */
    printf("%llu %llu\n", (unsigned long long)fuzz_understood, (unsigned long long)fuzz_refused);
    fuzz_trying = NULL; /* what fails now is no input */
    free(fuzz_seeds);
    return 0;
}
#else
static void fuzz_keep(void) {} /* libFuzzer does */
#endif
