/* SPDX-License-Identifier: Apache-2.0
 *
 * Kills a program between any two instructions: `kill_at STEPS THREAD PROGRAM WORDS...` lets the program run
 * until it stops itself, then lets one thread go on for STEPS instructions only, and kills it with SIGKILL.
 * THREAD is `main`, or the name of another thread, while the main one runs freely. Writes how many
 * instructions it was, and `end` before it if the program stopped itself again before.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(2);
}

/* The signal that stopped a thread of the program. */
static int wait_for(pid_t thread, pid_t *stopped) {
    int status;
    *stopped = waitpid(thread, &status, __WALL);
    if (*stopped < 0) die("waitpid");
    if (!WIFSTOPPED(status)) {
        fprintf(stderr, "the program ended: status %#x\n", status);
        exit(2);
    }
    return WSTOPSIG(status);
}

static void go_on(int request, pid_t thread, int signal) {
    if (ptrace(request, thread, NULL, (void *)(long)signal) < 0) die("ptrace");
}

static void run_to_stop(pid_t pid) {
    pid_t stopped;
    int signal = wait_for(pid, &stopped); /* of execve */
    if (ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_EXITKILL) < 0) die("options");
    for (; signal != SIGSTOP; signal = wait_for(pid, &stopped))
        go_on(PTRACE_CONT, pid, signal == SIGTRAP ? 0 : signal);
}

/* The thread of that name, or 0. */
static pid_t find_thread(pid_t pid, const char *name) {
    char path[300], comm[64];
    pid_t thread = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    for (struct dirent *task = readdir(tasks); task; task = readdir(tasks)) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/comm", pid, task->d_name);
        FILE *file = fopen(path, "r");
        bool found = file && fgets(comm, sizeof comm, file) && strncmp(comm, name, strlen(name)) == 0;
        if (file) fclose(file);
        if (found) thread = atoi(task->d_name);
    }
    closedir(tasks);
    return thread;
}

/* Attached and stopped. It was started before the program stopped itself, and gives itself its name. */
static pid_t attach(pid_t pid, const char *name) {
    pid_t thread, stopped;
    while ((thread = find_thread(pid, name)) == 0) sched_yield();
    if (ptrace(PTRACE_ATTACH, thread, NULL, NULL) < 0) die("attach");
    wait_for(thread, &stopped);
    return thread;
}

/* Returns how many steps were made; *ended when the main thread came to its second stop before. */
static long step(pid_t pid, pid_t thread, long steps, bool *ended) {
    long made = 0;
    for (*ended = false; made < steps;) {
        pid_t stopped;
        go_on(PTRACE_SINGLESTEP, thread, 0);
        int signal = wait_for(thread == pid ? pid : -1, &stopped);
        *ended = stopped == pid && signal == SIGSTOP;
        if (*ended) return made;
        if (stopped == thread) made++;
        if (stopped == thread && signal != SIGTRAP) die("an unexpected signal");
    }
    return made;
}

int main(int count, char **words) {
    bool ended;
    if (count < 4) return 2;
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execv(words[3], words + 3);
        _exit(127);
    }
    run_to_stop(pid);
    pid_t thread = strcmp(words[2], "main") == 0 ? pid : attach(pid, words[2]);
    if (thread != pid) go_on(PTRACE_CONT, pid, 0);
    long made = step(pid, thread, atol(words[1]), &ended);
    kill(pid, SIGKILL);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR) continue;
    printf("%s%ld\n", ended ? "end " : "", made);
    return 0;
}
