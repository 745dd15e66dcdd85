/* The C client follows the ensemble, while its members change; driven by tests/compat/test_following.py.
 *
 *   follow HOST:PORT
 *
 * It is told of one server. For each line "expect HOST:PORT,..." on its input it waits until the configuration names exactly
 * these servers, in this order, writes and reads, and prints "ok". For "operate JOINING LEAVING" it changes the members, as
 * the super user, and prints the configuration that was answered in one line. At the end of its input it still has the
 * session that it began with.
 */
#define THREADED
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define DEADLINE_S 90
#define SESSION_MS 30000
#define TEXT_BYTES 4096
#define CHECK(held, what) check((held), (what), __LINE__)

static int volatile changes = 1, authenticated;

static void check(int held, char const *what, int line) {
    if (!held) {
        fprintf(stderr, "line %d: %s\n", line, what);
        exit(1);
    }
}

static void on_session(zhandle_t *client, int type, int state, char const *path, void *context) {
    (void)client, (void)type, (void)state, (void)path, (void)context;
}

/* No call to the server is allowed in here. A lost connection may have lost the watch, too. */
static void on_change(zhandle_t *client, int type, int state, char const *path, void *context) {
    (void)client, (void)type, (void)state, (void)path, (void)context;
    __sync_add_and_fetch(&changes, 1);
}

static void on_auth(int code, void const *context) {
    (void)context;
    CHECK(code == ZOK, "authenticated");
    authenticated = 1;
}

/* Where clients connect, "HOST:PORT,...", of a configuration: what follows the semicolon of each line. */
static void client_addresses(char *data, char *found) {
    *found = 0;
    for (char *line = strtok(data, "\n"); line; line = strtok(NULL, "\n")) {
        char const *address = strchr(line, ';');
        if (strncmp(line, "server.", 7) || !address) continue;
        if (*found) strcat(found, ",");
        strcat(found, address + 1);
    }
}

/* Reads the configuration if it may have changed, and goes by it. */
static void follow(zhandle_t *client, char *servers) {
    static int seen;
    int now = changes, size = TEXT_BYTES - 1;
    char data[TEXT_BYTES], found[TEXT_BYTES];
    if (seen == now) return;
    if (zoo_wgetconfig(client, on_change, NULL, data, &size, NULL) != ZOK) return;
    seen = now;
    data[size < 0 ? 0 : size] = 0;
    client_addresses(data, found);
    if (!*found) return;
    CHECK(zoo_set_servers(client, found) == ZOK, "servers are taken");
    strcpy(servers, found);
}

static void write_and_read(zhandle_t *client, char const *text) {
    char data[TEXT_BYTES];
    for (int tries = 0; tries < DEADLINE_S * 10; tries++) {
        int size = sizeof data;
        if (zoo_set(client, "/c", text, (int)strlen(text), -1) == ZOK && zoo_get(client, "/c", 0, data, &size, NULL) == ZOK) {
            CHECK(size == (int)strlen(text) && !memcmp(data, text, size), "what was written is read");
            return;
        }
        usleep(100000);
    }
    CHECK(0, "a write in time");
}

int main(int count, char **arguments) {
    char line[TEXT_BYTES], servers[TEXT_BYTES] = "", made[64], data[TEXT_BYTES];
    struct Stat stat;
    CHECK(count == 2, "one argument");
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zhandle_t *client = zookeeper_init(arguments[1], on_session, SESSION_MS, NULL, NULL, 0);
    CHECK(client != NULL, "a handle");
    for (int tries = 0; zoo_state(client) != ZOO_CONNECTED_STATE; tries++) {
        CHECK(tries < DEADLINE_S * 50, "connected in time");
        usleep(20000);
    }
    CHECK(zoo_add_auth(client, "digest", "super:test", 10, on_auth, NULL) == ZOK, "asked");
    for (int tries = 0; !authenticated; tries++) {
        CHECK(tries < DEADLINE_S * 50, "authenticated in time");
        usleep(20000);
    }
    CHECK(zoo_create(client, "/c", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, made, sizeof made) == ZOK, "created");
    long long session = zoo_client_id(client)->client_id;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "operate ", 8)) {
            char *joining = strtok(line + 8, " "), *leaving = strtok(NULL, " ");
            int size, code = ZCONNECTIONLOSS;
            for (int tries = 0; code == ZCONNECTIONLOSS && tries < DEADLINE_S * 10; tries++) {
                size = sizeof data - 1;
                code = zoo_reconfig(client, *joining == '-' ? NULL : joining, *leaving == '-' ? NULL : leaving, NULL, -1,
                                    data, &size, &stat);
                if (code == ZCONNECTIONLOSS) usleep(100000);
            }
            CHECK(code == ZOK, "the members are changed");
            data[size] = 0;
            for (char *end = data; (end = strchr(end, '\n'));) *end = ' ';
            printf("%s\n", data);
            fflush(stdout);
            continue;
        }
        for (int tries = 0; strcmp(servers, line + 7); tries++) {
            CHECK(tries < DEADLINE_S * 50, "the expected servers in time");
            follow(client, servers);
            usleep(20000);
        }
        write_and_read(client, servers);
        printf("ok\n");
        fflush(stdout);
    }
    CHECK(zoo_client_id(client)->client_id == session, "the same session");
    CHECK(zoo_exists(client, "/c", 0, &stat) == ZOK && stat.ephemeralOwner == session, "its ephemeral");
    CHECK(zookeeper_close(client) == ZOK, "closed");
    printf("done\n");
    return 0;
}
