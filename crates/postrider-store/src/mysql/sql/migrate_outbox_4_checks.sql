-- Refuses values that the relay and operators could not handle, also in updates: a zero date cannot
-- be read back, and a FAILED row without a time would never be due. Runs only if the checks are
-- missing: an ALTER waits for every open transaction on the table. The ALTER does not check
-- existing rows (it would copy the table); they are corrected after it.
SET SESSION check_constraint_checks = 0;
ALTER TABLE `{outbox}`
    ADD CONSTRAINT `{outbox}_ck_times` CHECK (
        created_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(created_at) > 0 AND DAYOFMONTH(created_at) > 0
        AND updated_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(updated_at) > 0 AND DAYOFMONTH(updated_at) > 0
        AND next_retry_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(next_retry_at) > 0 AND DAYOFMONTH(next_retry_at) > 0
        AND expires_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(expires_at) > 0 AND DAYOFMONTH(expires_at) > 0
        AND locked_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(locked_at) > 0 AND DAYOFMONTH(locked_at) > 0
    ),
    ADD CONSTRAINT `{outbox}_ck_counts` CHECK (
        retry_count BETWEEN 0 AND 1000000 AND redrive_count BETWEEN 0 AND 1000000
        AND crash_count BETWEEN 0 AND 1000000 AND max_retries BETWEEN 1 AND 1000
        AND version BETWEEN 0 AND 9007199254740991
    ),
    ADD CONSTRAINT `{outbox}_ck_state` CHECK (
        (status <> 'FAILED' OR next_retry_at IS NOT NULL)
            AND (status = 'PROCESSING' OR locked_by IS NULL)
        AND (status = 'DEAD_LETTER') = (dead_reason IS NOT NULL)
        AND dead_reason IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash')
    );
SET SESSION check_constraint_checks = 1;
