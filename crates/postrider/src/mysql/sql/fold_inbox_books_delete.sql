-- In the same transaction as fold_inbox_books, so that a reader's snapshot has each entry exactly
-- once.
DELETE b FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS d
STRAIGHT_JOIN postrider_inbox_books AS b FORCE INDEX (PRIMARY) ON b.id = d.id
