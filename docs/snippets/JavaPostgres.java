import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

public class JavaPostgres {
    record Appended(long id, boolean duplicate) {}

    static String contentHash(String requestId, String eventType, String payload) throws Exception {
        String text = (requestId == null ? "" : requestId) + "|" + eventType + "|" + payload;
        byte[] hash = MessageDigest.getInstance("SHA-256")
            .digest(text.getBytes(StandardCharsets.UTF_8));
        return String.format("%064x", new BigInteger(1, hash));
    }

    /** Appends in the caller's transaction: auto-commit is off. */
    static Appended append(Connection connection, String aggregateId, String eventType,
                           String payload, String requestId) throws Exception {
        String insert = "INSERT INTO orders_outbox (request_id, aggregate_type, aggregate_id,"
            + " event_type, payload, content_hash) VALUES (?, 'order', ?, ?, ?, ?) RETURNING id";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            statement.setString(1, requestId);
            statement.setString(2, aggregateId);
            statement.setString(3, eventType);
            statement.setString(4, payload);
            statement.setString(5, contentHash(requestId, eventType, payload));
            try (ResultSet rows = statement.executeQuery()) {
                if (rows.next()) return new Appended(rows.getLong(1), false);
            }
        }
        // No row came back: the request id is known, and nothing was written.
        String select = "SELECT id FROM orders_outbox_keys WHERE request_id = ?";
        try (PreparedStatement statement = connection.prepareStatement(select)) {
            statement.setString(1, requestId);
            try (ResultSet rows = statement.executeQuery()) {
                if (rows.next()) return new Appended(rows.getLong(1), true);
            }
        }
        throw new SQLException("neither appended nor known: " + requestId);
    }

    static Appended placeOrder(Connection connection, String order, int amount) throws Exception {
        try {
            run(connection, "INSERT INTO calls (order_id) VALUES (?)", order);
            String payload = "{\"order\":\"" + order + "\",\"amount\":" + amount + "}";
            Appended event = append(connection, order, "OrderPlaced", payload, "order-" + order);
            if (!event.duplicate()) {
                run(connection, "INSERT INTO orders (id, amount) VALUES (?, " + amount + ")", order);
            }
            connection.commit();
            return event;
        } catch (Exception error) {
            connection.rollback();
            throw error;
        }
    }

    static void run(Connection connection, String sql, String order) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setString(1, order);
            statement.executeUpdate();
        }
    }

    public static void main(String[] args) throws Exception {
        try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            connection.setAutoCommit(false);
            for (int call = 0; call < 2; call++) { // the second call did not hear the first answer
                Appended event = placeOrder(connection, "1001", 25);
                System.out.printf("{\"id\":%d,\"duplicate\":%b}%n", event.id(), event.duplicate());
            }
        }
    }
}
