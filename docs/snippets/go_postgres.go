package main

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	_ "github.com/lib/pq"
)

func contentHash(requestID, eventType, payload string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(requestID+"|"+eventType+"|"+payload)))
}

// appendEvent appends in the caller's transaction. It answers the row id, and whether it is a repeat.
func appendEvent(tx *sql.Tx, aggregateID, eventType, payload, requestID string) (int64, bool, error) {
	var id int64
	err := tx.QueryRow(
		`INSERT INTO orders_outbox (request_id, aggregate_type, aggregate_id, event_type,
		                            payload, content_hash)
		 VALUES ($1, 'order', $2, $3, $4, $5) RETURNING id`,
		requestID, aggregateID, eventType, payload, contentHash(requestID, eventType, payload),
	).Scan(&id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, false, err
	}
	// No row came back: the request id is known, and nothing was written.
	err = tx.QueryRow("SELECT id FROM orders_outbox_keys WHERE request_id = $1", requestID).Scan(&id)
	return id, true, err
}

func placeOrder(db *sql.DB, order string, amount int) (int64, bool, error) {
	tx, err := db.Begin()
	if err != nil {
		return 0, false, err
	}
	defer tx.Rollback() // does nothing after the commit
	if _, err := tx.Exec("INSERT INTO calls (order_id) VALUES ($1)", order); err != nil {
		return 0, false, err
	}
	payload := fmt.Sprintf(`{"order":%q,"amount":%d}`, order, amount)
	id, duplicate, err := appendEvent(tx, order, "OrderPlaced", payload, "order-"+order)
	if err != nil {
		return 0, false, err
	}
	if !duplicate {
		_, err := tx.Exec("INSERT INTO orders (id, amount) VALUES ($1, $2)", order, amount)
		if err != nil {
			return 0, false, err
		}
	}
	return id, duplicate, tx.Commit()
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	for call := 0; call < 2; call++ { // the second call did not hear the first answer
		id, duplicate, err := placeOrder(db, "1001", 25)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("{\"id\":%d,\"duplicate\":%t}\n", id, duplicate)
	}
}
