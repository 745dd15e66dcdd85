// ZooKeeper's Java client: settings that two programs share, with a watch and a version.
//
//   apt-get install libzookeeper-java default-jdk-headless
//   java -cp /usr/share/java/zookeeper.jar Settings.java [HOST:PORT,...]

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public final class Settings {
    private static final String PATH = "/example-settings-of-java";

    public static void main(String[] arguments) throws Exception {
        String servers = arguments.length > 0 ? arguments[0] : "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183";
        try (ZooKeeper one = open(servers); ZooKeeper two = open(servers)) {
            try {
                one.create(PATH, "red".getBytes(StandardCharsets.UTF_8), ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            } catch (KeeperException.NodeExistsException e) {
                System.out.println("an earlier run has made it");
            }
            CountDownLatch changed = new CountDownLatch(1);
            // Perhaps it is connected to another server, which has not heard of the znode yet.
            two.sync(PATH, (code, path, context) -> {}, null);
            Stat stat = new Stat();
            two.getData(
                    PATH,
                    event -> {
                        if (event.getType() == EventType.NodeDataChanged) {
                            changed.countDown();
                        }
                    },
                    stat);
            one.setData(PATH, "blue".getBytes(StandardCharsets.UTF_8), stat.getVersion());
            if (!changed.await(20, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the watch saw nothing");
            }
            System.out.println("changed to " + new String(two.getData(PATH, false, null), StandardCharsets.UTF_8));
            try {
                two.setData(PATH, "green".getBytes(StandardCharsets.UTF_8), stat.getVersion());
                throw new IllegalStateException("an old version was taken");
            } catch (KeeperException.BadVersionException e) {
                System.out.println("somebody else was quicker: read again");
            }
        }
    }

    private static ZooKeeper open(String servers) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client =
                new ZooKeeper(
                        servers,
                        20_000,
                        event -> {
                            if (event.getState() == KeeperState.SyncConnected) {
                                connected.countDown();
                            }
                        });
        if (!connected.await(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no server answers at " + servers);
        }
        return client;
    }
}
