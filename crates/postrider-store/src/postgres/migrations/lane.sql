-- The lane of a key, for the queries of relays. Not a stored column: inserts would pay for it, and
-- PostgreSQL 18 computes it again in each update of the row (docs/decisions/0099). The server puts
-- the body in the place of the call. The hash may differ between servers; nothing keeps lanes that
-- long.
CREATE OR REPLACE FUNCTION postrider_lane(aggregate_type text, aggregate_id text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (hashtextextended(aggregate_id, hashtext(aggregate_type)) & 63)::integer
$$;
