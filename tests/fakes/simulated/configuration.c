/* SPDX-License-Identifier: Apache-2.0 */
#include "simulated/configuration.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Any object of this library: dladdr names the file it came from. */
static const char library_anchor;

static int find_directory(char *directory, size_t size) {
    const char *asked = getenv("SIMULATED_GPU_DIRECTORY");
    if (asked != NULL && *asked != '\0') {
        return (size_t)snprintf(directory, size, "%s", asked) < size ? 0 : -ENAMETOOLONG;
    }
    Dl_info info;
    if (dladdr(&library_anchor, &info) == 0 || info.dli_fname == NULL) return -ENOENT;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash == NULL) return (size_t)snprintf(directory, size, ".") < size ? 0 : -ENAMETOOLONG;
    int length = (int)(slash - info.dli_fname);
    return (size_t)snprintf(directory, size, "%.*s", length, info.dli_fname) < size ? 0 : -ENAMETOOLONG;
}

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" to 16 bytes, in the order of the text. */
static bool parse_uuid(const char *text, struct simulated_device *device) {
    if (strlen(text) != SIMULATED_UUID_TEXT - 1 || strncmp(text, "GPU-", 4) != 0) return false;
    unsigned digits = 0;
    for (unsigned i = 4; text[i] != '\0'; i++) {
        bool dash = i == 12 || i == 17 || i == 22 || i == 27;
        if (dash != (text[i] == '-')) return false;
        if (dash) continue;
        if (!isxdigit((unsigned char)text[i])) return false;
        char digit[2] = {text[i], '\0'};
        uint8_t value = (uint8_t)strtoul(digit, NULL, 16);
        device->uuid[digits / 2] = (uint8_t)(device->uuid[digits / 2] << 4 | value);
        digits++;
    }
    memcpy(device->uuid_text, text, SIMULATED_UUID_TEXT);
    return true;
}

static bool parse_number(const char *text, uint64_t *value) {
    if (!isdigit((unsigned char)*text)) return false;
    char *end = NULL;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static bool parse_setting(struct simulated_configuration *configuration, const char *key, const char *value) {
    const struct {
        const char *key;
        uint64_t *target;
    } settings[] = {
        {"settle_us_per_gib", &configuration->settle_us_per_gib},
        {"context_size", &configuration->context_size},
        {"process_size", &configuration->process_size},
        {"oom_us", &configuration->oom_us},
        {"pinned_mib", &configuration->pinned_mib},
        {"checkpoint_us_per_gib", &configuration->checkpoint_us_per_gib},
        {"copy_mib_per_s", &configuration->copy_mib_per_s},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (strcmp(key, settings[i].key) == 0) return parse_number(value, settings[i].target);
    }
    return false; /* an unknown key is a typing error, not a wish for the default */
}

static bool parse_line(struct simulated_configuration *configuration, char *line) {
    line[strcspn(line, "#\r\n")] = '\0';
    char *equals = strchr(line, '=');
    if (equals != NULL) *equals = ' ';
    char first[64], second[64], rest;
    int words = sscanf(line, "%63s %63s %c", first, second, &rest);
    if (words <= 0) return true; /* nothing but a comment */
    if (words != 2) return false;
    if (equals != NULL) return parse_setting(configuration, first, second);
    if (configuration->device_count == SIMULATED_DEVICES_MAX) return false;
    struct simulated_device *device = &configuration->device[configuration->device_count];
    if (!parse_uuid(first, device) || !parse_number(second, &device->total)) return false;
    configuration->device_count++;
    return true;
}

int simulated_configuration_read(struct simulated_configuration *configuration) {
    *configuration = (struct simulated_configuration){.context_size = UINT64_C(526) << 20};
    int error = find_directory(configuration->directory, sizeof configuration->directory);
    if (error != 0) return error;
    char path[SIMULATED_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/devices", configuration->directory);
    FILE *file = fopen(path, "re");
    if (file == NULL) return -errno;
    char line[256];
    for (unsigned number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        if (parse_line(configuration, line)) continue;
        fprintf(stderr, "simulated GPU: %s:%u: expected 'UUID BYTES' or 'KEY=VALUE'\n", path, number);
        error = -EINVAL;
        break;
    }
    fclose(file);
    return error;
}
