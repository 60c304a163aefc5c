/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches in all their forms, kernels in graphs, and images that the hook can read.
 */
#include "program.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

/* CUlaunchConfig. */
struct configuration {
    unsigned grid[3], block[3], shared;
    uint64_t stream, attributes;
    unsigned count;
};

/* launchkernel FUNCTION FORM STREAM */
static CUresult launch(const size_t *number) {
    word f = number[0], stream = number[2];
    struct configuration one = {{1, 1, 1}, {1, 1, 1}, 0, stream, 0, 0};
    word configured = (word)(uintptr_t)&one;
    switch (number[1]) {
    case 6: /* of no blocks */
        return cuda.cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, stream, 0, 0);
    case 0:
        return cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0);
    case 1:
        return cuda.cuLaunchKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0);
    case 2:
        return cuda.cuLaunchKernelEx(configured, f, 0, 0);
    case 3:
        return cuda.cuLaunchKernelEx_ptsz(configured, f, 0, 0);
    case 4:
        return cuda.cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, 0);
    default:
        return cuda.cuLaunchCooperativeKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, stream, 0);
    }
}

/* addkernel GRAPH FUNCTION FORM, prints the node: a function in the first and second form, a kernel, the
 * general node. */
static CUresult add_kernel(const size_t *number, void **written) {
    CUgraph graph = (CUgraph)number[0];
    struct kernel_node node = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .function = (void *)number[1]};
    union {
        struct node_parameters read;
        char room[256];
    } general = {.read = {.type = NODE_KERNEL, .kernel = node}};
    CUgraphNode *made = (CUgraphNode *)written;
    switch (number[2]) {
    case 0:
        return cuda.cuGraphAddKernelNode(made, graph, NULL, 0, &node);
    case 1:
        return cuda.cuGraphAddKernelNode_v2(made, graph, NULL, 0, &node);
    case 2:
        node.kernel = node.function;
        node.function = NULL;
        return cuda.cuGraphAddKernelNode_v2(made, graph, NULL, 0, &node);
    default:
        return cuda.cuGraphAddNode_v2(made, graph, NULL, NULL, 0, &general.read);
    }
}

/* addlayers GRAPH FUNCTION WIDTH DEPTH: kernels, of which each waits for all of the layer before. */
static CUresult add_layers(const size_t *number) {
    enum { WIDEST = 64 };
    struct kernel_node node = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .function = (void *)number[1]};
    CUgraphNode before[WIDEST], made[WIDEST];
    CUresult result = number[2] <= WIDEST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t layer = 0; result == CUDA_SUCCESS && layer < number[3]; layer++) {
        for (size_t index = 0; result == CUDA_SUCCESS && index < number[2]; index++)
            result = cuda.cuGraphAddKernelNode_v2(&made[index], (CUgraph)number[0], before,
                                                  layer ? number[2] : 0, &node);
        memcpy(before, made, sizeof before);
    }
    return result;
}

/* setkernel EXEC NODE FUNCTION */
static CUresult set_kernel(const size_t *number) {
    struct kernel_node node = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .function = (void *)number[2]};
    return cuda.cuGraphExecKernelNodeSetParams_v2((CUgraphExec)number[0], (CUgraphNode)number[1], &node);
}

/* A cubin as the driver's: an ELF file whose variables take no room in it. */
struct cubin {
    Elf64_Ehdr header;
    Elf64_Shdr sections[3];
    char names[192];
};

struct fat {
    struct {
        uint32_t magic;
        uint16_t version, header_size;
        uint64_t size;
    } header;
    struct {
        uint16_t kind, version;
        uint32_t header_size;
        uint64_t size;
        uint32_t compressed, options;
        uint16_t minor, major;
        uint32_t architecture;
        uint64_t rest[4];
    } entry;
    struct cubin cubin;
};
_Static_assert(sizeof(((struct fat *)0)->entry) == 64, "as the driver's");

/* What kernels call of the driver, each a bit; the last two only resemble the others, one in its end. */
static const char *const called[] = {"__cuda_syscall_cnpv2LaunchDeviceV2",
                                     "vprintf",
                                     "__assertfail",
                                     "malloc",
                                     "free",
                                     "mallocator%1$cfree_$%1$cvprintf2%1$c__assertfail_",
                                     "my_malloc"};
enum { CALLED = sizeof called / sizeof called[0] };

/* Writes those of the set, with `between` before each; returns how many bytes. */
static size_t write_calls(char *text, size_t set, char between) {
    size_t length = 0;
    for (int each = 0; each < CALLED; each++) {
        if (!(set >> each & 1)) continue;
        text[length++] = between;
        length += (size_t)sprintf(text + length, called[each], between);
    }
    return length;
}

static struct cubin make_cubin(size_t variables, size_t calls) {
    struct cubin cubin = {.names = "\0.nv.global\0.shstrtab"};
    write_calls(cubin.names + 21, calls, '\0');
    memcpy(cubin.header.e_ident, ELFMAG, SELFMAG);
    cubin.header.e_ident[EI_CLASS] = ELFCLASS64;
    cubin.header.e_shoff = sizeof cubin.header;
    cubin.header.e_shentsize = sizeof cubin.sections[0];
    cubin.header.e_shnum = 3;
    cubin.header.e_shstrndx = 2;
    cubin.sections[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_NOBITS, .sh_size = variables};
    cubin.sections[2] = (Elf64_Shdr){.sh_name = 12,
                                     .sh_type = SHT_STRTAB,
                                     .sh_offset = sizeof cubin.header + sizeof cubin.sections,
                                     .sh_size = sizeof cubin.names};
    return cubin;
}

static CUresult load_file(const struct cubin *cubin, void **made) {
    char name[] = "made.cubin";
    FILE *file = fopen(name, "w");
    bool written = file && fwrite(cubin, sizeof *cubin, 1, file) == 1;
    return !file || fclose(file) != 0 || !written ? -2 : cuda.cuModuleLoad(made, name);
}

/* PTX for the hook, and for the simulated driver an image of its kind. */
static CUresult load_ptx(size_t variables, bool library, size_t calls, void **made) {
    char text[320];
    int length = sprintf(text, ".visible .global .b8 big[%zu]; // variables=%zu", variables, variables);
    text[(size_t)length + write_calls(text + length, calls, ' ')] = '\0';
    return library ? cuda.cuLibraryLoadData(made, text, NULL, NULL, 0, NULL, NULL, 0)
                   : cuda.cuModuleLoadData(made, text);
}

/* cubin VARIABLES FORM CALLS: a module, a library, a library of a fat binary, a module of a file, a module
 * and a library of PTX; what its kernels call of the driver. */
static CUresult load(const size_t *number, void **made) {
    struct fat fat = {
        {0xba55ed50, 1, sizeof fat.header, sizeof fat.entry + sizeof fat.cubin},
        {.kind = 2, .architecture = 90, .header_size = sizeof fat.entry, .size = sizeof fat.cubin},
        make_cubin(number[0], number[2])};
    struct {
        uint32_t magic, version;
        const void *data, *rest;
    } wrapper = {0x466243b1, 1, &fat, NULL};
    switch (number[1]) {
    case 0:
        return cuda.cuModuleLoadData(made, &fat.cubin);
    case 1:
        return cuda.cuLibraryLoadData(made, &fat.cubin, NULL, NULL, 0, NULL, NULL, 0);
    case 2:
        return cuda.cuLibraryLoadData(made, &wrapper, NULL, NULL, 0, NULL, NULL, 0);
    case 3:
        return load_file(&fat.cubin, made);
    default:
        return load_ptx(number[0], number[1] == 5, number[2], made);
    }
}

CUresult run_launch(const char *command, const size_t *number, char *values) {
    void *made = (void *)0x5a5a;
    if (strcmp(command, "launchkernel") == 0) return launch(number);
    if (strcmp(command, "setkernel") == 0) return set_kernel(number);
    if (strcmp(command, "addlayers") == 0) return add_layers(number);
    bool adds = strcmp(command, "addkernel") == 0;
    if (!adds && strcmp(command, "cubin") != 0) return -1;
    CUresult result = adds ? add_kernel(number, &made) : load(number, &made);
    return sprintf(values, " %p", made), result;
}
