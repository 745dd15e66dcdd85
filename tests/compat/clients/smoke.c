/* The C client against three servers; driven by tests/compat/test_clients.py.
 *
 *   smoke HOST:PORT,HOST:PORT,HOST:PORT
 *
 * Prints "ok NAME" for each claim that held and "done" at the end. Prints "kill PORT" when it wants the server that it
 * uses killed, and goes on when a line comes back on its input. Any claim that does not hold ends it.
 */
#define THREADED
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define DEADLINE_S 60
#define SESSION_MS 20000
#define CHECK(held, what) check((held), (what), __LINE__)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int last_type, events;
static char last_path[256];
static char const *servers;

static void check(int held, char const *what, int line) {
    if (!held) {
        fprintf(stderr, "line %d: %s\n", line, what);
        exit(1);
    }
}

static int is_connected(zhandle_t *client) { return zoo_state(client) == ZOO_CONNECTED_STATE; }

static void on_session(zhandle_t *client, int type, int state, char const *path, void *context) {
    (void)client, (void)type, (void)state, (void)path, (void)context;
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void on_event(zhandle_t *client, int type, int state, char const *path, void *context) {
    (void)client, (void)state, (void)context;
    if (type == ZOO_SESSION_EVENT) return;
    pthread_mutex_lock(&mutex);
    last_type = type;
    snprintf(last_path, sizeof last_path, "%s", path);
    events++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void wait_connected(zhandle_t *client) {
    for (int tries = 0; !is_connected(client); tries++) {
        CHECK(tries < DEADLINE_S * 50, "connected in time");
        usleep(20000);
    }
}

/* Waits for the event after the `seen` first ones. */
static void expect(int seen, int type, char const *path) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += DEADLINE_S;
    pthread_mutex_lock(&mutex);
    while (events == seen) CHECK(pthread_cond_timedwait(&changed, &mutex, &deadline) == 0, "an event in time");
    CHECK(last_type == type, "the type of the event");
    CHECK(strcmp(last_path, path) == 0, "the path of the event");
    pthread_mutex_unlock(&mutex);
}

static zhandle_t *open_client(void) {
    zhandle_t *client = zookeeper_init(servers, on_session, SESSION_MS, NULL, NULL, 0);
    CHECK(client != NULL, "a handle");
    wait_connected(client);
    return client;
}

static int port_of(zhandle_t *client) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    CHECK(zookeeper_get_connected_host(client, (struct sockaddr *)&address, &size) != NULL, "an address");
    return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

static int create(zhandle_t *client, char const *path, char const *data, int mode, char *made, int size) {
    return zoo_create(client, path, data, data ? (int)strlen(data) : -1, &ZOO_OPEN_ACL_UNSAFE, mode, made, size);
}

static void synced(int code, char const *value, void const *context) {
    (void)value;
    *(int volatile *)context = code;
}

/* Waits until the client's server has caught up. */
static void sync_with_leader(zhandle_t *client) {
    int volatile code = 1;
    CHECK(zoo_async(client, "/", synced, (void *)&code) == ZOK, "asked");
    for (int tries = 0; code == 1; tries++) {
        CHECK(tries < DEADLINE_S * 50, "an answer to sync in time");
        usleep(20000);
    }
    CHECK(code == ZOK, "synced");
}

static void watch(zhandle_t *one, zhandle_t *two) {
    struct Stat stat;
    char made[64], buffer[64];
    int size = sizeof buffer, seen = events;
    CHECK(zoo_wexists(one, "/c", on_event, NULL, &stat) == ZNONODE, "nothing there yet");
    CHECK(create(two, "/c", "a", 0, made, sizeof made) == ZOK, "created");
    expect(seen, ZOO_CREATED_EVENT, "/c");
    seen = events;
    CHECK(zoo_wget(one, "/c", on_event, NULL, buffer, &size, &stat) == ZOK && size == 1 && *buffer == 'a', "data");
    CHECK(zoo_set(two, "/c", "b", 1, stat.version) == ZOK, "set");
    expect(seen, ZOO_CHANGED_EVENT, "/c");
    CHECK(zoo_set(two, "/c", "b", 1, 9) == ZBADVERSION, "a wrong version");
    seen = events;
    struct String_vector names;
    CHECK(zoo_wget_children(one, "/c", on_event, NULL, &names) == ZOK && names.count == 0, "no children");
    deallocate_String_vector(&names);
    CHECK(create(two, "/c/s-", NULL, ZOO_SEQUENCE, made, sizeof made) == ZOK, "a sequential one");
    CHECK(strcmp(made, "/c/s-0000000000") == 0, made);
    expect(seen, ZOO_CHILD_EVENT, "/c");
    size = sizeof buffer;
    CHECK(zoo_get(two, made, 0, buffer, &size, &stat) == ZOK && size == -1, "no data is not empty data");
    puts("ok watch");
}

static void transaction(zhandle_t *client) {
    char made[64];
    struct Stat stat;
    zoo_op_t ops[3];
    zoo_op_result_t results[3];
    zoo_create_op_init(&ops[0], "/tx", "1", 1, &ZOO_OPEN_ACL_UNSAFE, 0, made, sizeof made);
    zoo_set_op_init(&ops[1], "/tx", "2", 1, 0, &stat);
    zoo_check_op_init(&ops[2], "/tx", 1);
    CHECK(zoo_multi(client, 3, ops, results) == ZOK, "all of it");
    CHECK(stat.version == 1 && strcmp(made, "/tx") == 0, "the results");
    zoo_set_op_init(&ops[0], "/tx", "3", 1, -1, &stat);
    zoo_check_op_init(&ops[1], "/tx", 9);
    zoo_delete_op_init(&ops[2], "/tx", -1);
    CHECK(zoo_multi(client, 3, ops, results) == ZBADVERSION, "none of it");
    CHECK(results[0].err == ZOK && results[1].err == ZBADVERSION && results[2].err == ZRUNTIMEINCONSISTENCY, "codes");
    CHECK(zoo_exists(client, "/tx", 0, &stat) == ZOK && stat.version == 1, "nothing happened");
    puts("ok transaction");
}

static void done_void(int code, void const *context) { *(int *)context = code; }

static void access_rights(zhandle_t *stranger) {
    zhandle_t *owner = open_client();
    char made[64], buffer[64];
    struct Stat stat;
    int size = sizeof buffer;
    volatile int code = 1;
    CHECK(zoo_add_auth(owner, "digest", "ann:secret", 10, done_void, (void *)&code) == ZOK, "asked");
    for (int tries = 0; code == 1; tries++) {
        CHECK(tries < DEADLINE_S * 50, "an answer to addauth in time");
        usleep(20000);
    }
    CHECK(code == ZOK, "authenticated");
    CHECK(zoo_create(owner, "/private", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, made, sizeof made) == ZOK, "created");
    CHECK(zoo_set(stranger, "/private", "y", 1, -1) == ZNOAUTH, "no stranger writes");
    CHECK(zoo_get(owner, "/private", 0, buffer, &size, &stat) == ZOK && *buffer == 'x', "the owner reads");
    struct ACL_vector acl;
    CHECK(zoo_get_acl(owner, "/private", &acl, &stat) == ZOK && acl.count == 1, "its ACL");
    CHECK(strncmp(acl.data[0].id.id, "ann:", 4) == 0, acl.data[0].id.id);
    deallocate_ACL_vector(&acl);
    CHECK(zoo_delete(owner, "/private", -1) == ZOK, "deleted");
    zookeeper_close(owner);
    puts("ok access");
}

static int compare_names(void const *one, void const *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* The recipe of ZooKeeper's documentation: queue up, watch the one before; gives the own znode's path. */
static void queue_up(zhandle_t *client, char const *directory, char *own, int size) {
    char prefix[128];
    snprintf(prefix, sizeof prefix, "%s/n-", directory);
    CHECK(create(client, prefix, "", ZOO_EPHEMERAL | ZOO_SEQUENCE, own, size) == ZOK, "queued up");
}

/* The path of the znode in front of `own`; empty if it is the first. */
static void in_front_of(zhandle_t *client, char const *directory, char const *own, char *before, int size) {
    struct String_vector names;
    CHECK(zoo_get_children(client, directory, 0, &names) == ZOK, "children");
    qsort(names.data, names.count, sizeof *names.data, compare_names);
    *before = 0;
    for (int i = 1; i < names.count; i++)
        if (strcmp(names.data[i], strrchr(own, '/') + 1) == 0)
            snprintf(before, size, "%s/%s", directory, names.data[i - 1]);
    deallocate_String_vector(&names);
}

struct worker {
    zhandle_t *client;
    int turns;
};
static int inside;

static void *work(void *argument) {
    struct worker *worker = argument;
    for (; worker->turns > 0; worker->turns--) {
        char own[128], before[128];
        struct Stat stat;
        queue_up(worker->client, "/lock", own, sizeof own);
        for (in_front_of(worker->client, "/lock", own, before, sizeof before); *before;
             in_front_of(worker->client, "/lock", own, before, sizeof before))
            while (zoo_exists(worker->client, before, 0, &stat) == ZOK) usleep(1000);
        CHECK(__sync_add_and_fetch(&inside, 1) == 1, "alone");
        __sync_sub_and_fetch(&inside, 1);
        CHECK(zoo_delete(worker->client, own, -1) == ZOK, "released");
    }
    return NULL;
}

static void lock(zhandle_t *one, zhandle_t *two) {
    CHECK(create(one, "/lock", NULL, 0, NULL, 0) == ZOK, "created");
    sync_with_leader(two);
    struct worker workers[] = {{one, 15}, {two, 15}, {one, 15}};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, &workers[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK(workers[0].turns + workers[1].turns + workers[2].turns == 0, "all had their turns");
    puts("ok lock");
}

static void election(zhandle_t *one) {
    zhandle_t *two = open_client();
    char leader[128], next[128], before[128];
    struct Stat stat;
    CHECK(create(one, "/election", NULL, 0, NULL, 0) == ZOK, "created");
    sync_with_leader(two);
    queue_up(two, "/election", leader, sizeof leader);
    queue_up(one, "/election", next, sizeof next);
    in_front_of(one, "/election", next, before, sizeof before);
    CHECK(strcmp(before, leader) == 0, "the other leads");
    int seen = events;
    CHECK(zoo_wexists(one, before, on_event, NULL, &stat) == ZOK, "watching the leader");
    zookeeper_close(two);
    expect(seen, ZOO_DELETED_EVENT, leader);
    in_front_of(one, "/election", next, before, sizeof before);
    CHECK(*before == 0, "now this one leads");
    puts("ok election");
}

/* A cache of one value, as programs in C write it: read, and again whenever the watch fires. */
static char cached[64];
static zhandle_t *caching;

static void refresh(zhandle_t *client, int type, int state, char const *path, void *context);

static void on_data(int code, char const *value, int size, struct Stat const *stat, void const *context) {
    (void)stat, (void)context;
    if (code != ZOK) return;
    pthread_mutex_lock(&mutex);
    snprintf(cached, sizeof cached, "%.*s", size, value);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void refresh(zhandle_t *client, int type, int state, char const *path, void *context) {
    (void)client, (void)state, (void)path, (void)context;
    if (type != ZOO_SESSION_EVENT) zoo_awget(caching, "/cached", refresh, NULL, on_data, NULL);
}

static void wait_cached(char const *value) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += DEADLINE_S;
    pthread_mutex_lock(&mutex);
    while (strcmp(cached, value) != 0)
        CHECK(pthread_cond_timedwait(&changed, &mutex, &deadline) == 0, "the cache followed in time");
    pthread_mutex_unlock(&mutex);
}

static void cache(zhandle_t *one, zhandle_t *two) {
    caching = one;
    CHECK(create(one, "/cached", "first", 0, NULL, 0) == ZOK, "created");
    refresh(one, ZOO_CHANGED_EVENT, 0, NULL, NULL);
    wait_cached("first");
    CHECK(zoo_set(two, "/cached", "second", 6, -1) == ZOK, "set");
    wait_cached("second");
    puts("ok cache");
}

static void reconnect(zhandle_t *one, zhandle_t *two) {
    char line[16];
    struct Stat stat;
    int64_t session = zoo_client_id(one)->client_id;
    int before = port_of(one), seen = events;
    CHECK(create(one, "/mine", "x", ZOO_EPHEMERAL, NULL, 0) == ZOK, "an ephemeral");
    CHECK(zoo_wexists(one, "/watched", on_event, NULL, &stat) == ZNONODE, "watching");
    printf("kill %d\n", before);
    CHECK(fgets(line, sizeof line, stdin) != NULL, "killed");
    int code;
    do code = create(two, "/watched", "", 0, NULL, 0);
    while (code == ZCONNECTIONLOSS || code == ZOPERATIONTIMEOUT);
    CHECK(code == ZOK || code == ZNODEEXISTS, "created after the kill");
    expect(seen, ZOO_CREATED_EVENT, "/watched");
    CHECK(zoo_set(two, "/cached", "third", 5, -1) == ZOK, "set");
    wait_cached("third");
    wait_connected(one);
    CHECK(zoo_client_id(one)->client_id == session, "the same session");
    CHECK(port_of(one) != before, "another server");
    CHECK(zoo_exists(one, "/mine", 0, &stat) == ZOK && stat.ephemeralOwner == session, "the ephemeral is there");
    puts("ok reconnect");
}

static void end_of_session(zhandle_t *one, zhandle_t *two) {
    struct Stat stat;
    int seen = events;
    sync_with_leader(two);
    CHECK(zoo_wexists(two, "/mine", on_event, NULL, &stat) == ZOK, "still there");
    time_t began = time(NULL);
    CHECK(zookeeper_close(one) == ZOK, "closed");
    expect(seen, ZOO_DELETED_EVENT, "/mine");
    CHECK(time(NULL) - began < SESSION_MS / 1000 / 2, "long before the session would have expired");
    CHECK(zoo_exists(two, "/mine", 0, &stat) == ZNONODE, "gone with its session");
    puts("ok close");
}

int main(int count, char **arguments) {
    CHECK(count == 2, "usage: smoke SERVERS");
    setvbuf(stdout, NULL, _IOLBF, 0);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    servers = arguments[1];
    zhandle_t *one = open_client(), *two = open_client();
    watch(one, two);
    transaction(one);
    access_rights(two);
    lock(one, two);
    election(one);
    cache(one, two);
    reconnect(one, two);
    end_of_session(one, two);
    zookeeper_close(two);
    puts("done");
    return 0;
}
