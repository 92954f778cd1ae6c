// Curator's InterProcessMutex, told what to do on its input: take, give, add FILE COUNT, or time COUNT. Answers each with one
// line, and a time with one more before it.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class Curator {
    public static void main(String[] args) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(args[0], 2000, 2000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex lock = new InterProcessMutex(client, args[1]);
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "take" -> lock.acquire();
                case "give" -> lock.release();
                case "add" -> {
                    Path file = Path.of(words[1]);
                    for (int i = Integer.parseInt(words[2]); i > 0; i--) {
                        lock.acquire();
                        int count = Integer.parseInt(Files.readString(file).strip());
                        TimeUnit.MILLISECONDS.sleep(2);
                        Files.writeString(file, Integer.toString(count + 1));
                        lock.release();
                    }
                }
                case "time" -> {
                    long start = System.nanoTime();
                    for (int i = Integer.parseInt(words[1]); i > 0; i--) {
                        lock.acquire();
                        lock.release();
                    }
                    System.out.println("took " + (System.nanoTime() - start));
                }
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println("done " + words[0]);
        }
        client.close();
    }
}
