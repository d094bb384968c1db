//! The suite that every store passes.
//!
//! Each case is one `async fn(db: TestDb)`, named as the sentence that it proves. It uses only the
//! traits of `postrider_store` and the application's `append`; raw SQL is for manipulations. If
//! the store's `capabilities()` exclude a feature, the case asserts the declared alternative.

pub mod append;
pub mod batches;
pub mod callers;
pub mod claim;
pub mod dead_letters;
pub mod duplicates;
pub mod fan_out;
pub mod faults;
pub mod fencing;
pub mod history;
pub mod inbox;
pub mod jobs;
pub mod lane_reads;
pub mod lanes;
pub mod ledger_property;
pub mod locks;
pub mod lookups;
pub mod maintenance;
pub mod pauses;
pub mod recovery;
pub mod round_trip;
pub mod schema;
pub mod search;
pub mod settle;
pub mod steps;

/// Generates one test per case for a store: `store_conformance!(postgres)`.
#[macro_export]
macro_rules! store_conformance {
    ($store:ident) => {
        $crate::store_cases!($store, append: [
            a_committed_event_is_claimable_with_all_of_its_fields,
            a_rolled_back_transaction_leaves_no_event,
            payloads_and_headers_of_any_text_come_back_unchanged,
            columns_hold_their_full_length_of_four_byte_characters,
            an_invalid_event_is_refused_before_anything_is_written,
            a_plain_insert_of_the_required_columns_is_counted_and_claimed,
            values_that_the_contract_refuses_are_refused_and_its_largest_are_not,
            a_held_back_event_is_not_claimable_before_its_time,
            a_wait_beyond_all_calendars_is_a_long_one,
        ]);
        $crate::store_cases!($store, duplicates: [
            a_repeated_request_id_is_answered_with_the_first_id,
            a_duplicate_does_not_poison_the_callers_transaction,
            a_batch_with_duplicates_answers_in_order_and_keeps_the_order_of_keys,
            a_batch_that_repeats_identity_and_request_id_has_it_new_once,
            request_ids_that_only_look_alike_are_distinct,
            a_concurrent_repeat_waits_and_is_answered_with_the_first_id,
            a_concurrent_repeat_is_new_when_the_first_rolls_back,
            a_repeat_in_an_older_snapshot_is_an_error_only_where_declared,
            a_repeat_in_a_plain_insert_behaves_as_declared,
            the_same_event_from_many_at_once_is_new_once,
            overlapping_batches_from_many_at_once_are_all_answered,
            an_open_request_id_is_free_again_when_its_event_leaves,
            an_open_request_id_that_is_freed_meanwhile_is_no_error,
        ]);
        $crate::store_cases!($store, callers: [
            a_caller_that_goes_away_leaves_no_transaction_open,
            a_settle_that_is_left_halfway_leaves_no_transaction_open,
        ]);
        $crate::store_cases!($store, claim: [
            a_claim_takes_the_oldest_rows_within_the_limit,
            a_claim_says_whether_there_may_be_more,
            a_claim_is_limited_in_bytes_and_a_large_event_travels_alone,
            headers_count_against_the_limit_of_bytes,
            relays_that_claim_at_once_never_share_a_row,
            a_failed_row_is_claimed_again_when_due,
            fresh_rows_behind_a_batch_of_waiting_ones_are_not_passed_over,
            a_batch_of_one_row_reaches_waiting_and_fresh_rows,
            a_late_commit_is_claimed_with_the_same_cursor,
            a_gap_in_the_ids_does_not_hold_up_claims,
            rows_that_come_back_are_found_by_the_same_cursor,
            a_fenced_relay_claims_nothing,
            a_relay_without_a_registration_claims_nothing,
            hints_arrive_where_the_store_declares_them,
        ]);
        $crate::store_cases!($store, settle: [
            delivered_events_are_removed_and_recorded,
            of_many_delivered_events_only_those_meant_are_removed,
            rows_that_moved_are_settled_and_what_took_their_place_is_not,
            archived_events_keep_their_fields,
            an_answer_is_kept_with_its_event,
            an_answer_of_a_fenced_relay_is_not_kept,
            a_repeated_settle_changes_nothing,
            a_settle_with_another_version_changes_nothing,
            a_relay_cannot_settle_what_another_one_holds,
            an_empty_settle_changes_nothing,
            a_failure_spends_an_attempt_and_waits,
            the_last_twenty_attempts_are_kept,
            no_error_text_or_wait_fails_a_settle,
            a_release_spends_no_attempt,
            a_death_without_an_attempt_counts_none,
            without_a_dead_letter_table_the_row_stays_until_upkeep_moves_it,
            marked_rows_are_moved_in_chunks,
        ]);
        $crate::store_cases!($store, fencing: [
            a_heartbeat_moves_the_pulse_that_others_see,
            a_relay_whose_heart_beats_is_not_fenced,
            fencing_again_answers_the_same,
            no_write_of_a_fenced_relay_succeeds,
            a_fence_waits_for_a_settle_that_is_under_way,
            a_settle_waits_for_a_fence_that_is_under_way,
            only_a_fenced_relay_is_removed,
            a_late_settle_after_recovery_changes_nothing,
        ]);
        $crate::store_cases!($store, recovery: [
            a_job_of_a_dead_runner_is_taken_over_after_the_clock_was_set_back,
            rows_of_a_dead_relay_return_with_the_crash_counted,
            a_suspect_waits_longer_after_each_crash,
            rows_of_a_live_relay_stay_however_old_their_lock_looks,
            rows_of_an_unknown_relay_return_after_the_stall_time,
            only_rows_that_are_held_are_recovered,
            release_lost_gives_back_exactly_what_is_not_in_flight,
            a_suspect_is_claimed_alone_and_never_in_a_batch,
            the_suspect_with_the_fewest_crashes_comes_first,
            an_outcome_clears_the_crash_count_and_a_release_untried_does_not,
            a_suspect_that_is_not_due_is_left_alone,
        ]);
        $crate::store_cases!($store, fan_out: [
            copies_go_where_their_branches_lead_and_keep_their_identity,
            a_repeated_or_fenced_fan_out_copies_nothing_more,
            a_copy_that_fails_undoes_the_others_and_the_settle,
            a_copy_is_made_although_the_branch_remembers_its_request_id,
        ]);
        $crate::store_cases!($store, lanes: [
            free_lanes_are_taken_up_to_the_limit,
            lanes_of_a_living_relay_stay_with_it,
            relays_that_take_at_once_never_share_a_lane,
            lanes_of_a_dead_relay_are_taken_with_the_crash_counted,
            a_retired_relay_leaves_no_crash_where_it_gave_its_lanes_back,
            a_fenced_relay_takes_no_lane,
            a_late_release_does_nothing,
            the_next_owner_learns_what_was_in_flight,
            only_the_suspect_is_charged_with_a_crash,
            rows_that_were_only_read_are_settled,
            a_row_that_changed_since_the_read_is_not_settled,
            a_fenced_relay_settles_nothing_that_it_read,
            a_parked_key_stays_until_an_operator_releases_it,
            blocked_keys_are_listed_with_what_waits_behind_them,
            a_change_of_the_claim_mode_is_counted_and_recorded,
            relays_tell_each_other_what_they_serve,
            shares_are_disjoint_and_complete,
            shares_claimed_at_once_leave_nothing_behind,
        ]);
        $crate::store_cases!($store, lane_reads: [
            a_read_answers_rows_in_order_and_marks_nothing,
            a_read_answers_the_same_event_as_a_claim,
            a_read_keeps_to_its_lanes,
            rows_that_are_not_due_are_read_with_the_time_that_is_left,
            known_rows_hidden_keys_and_dead_rows_are_passed_over,
            a_read_is_limited_in_bytes_and_an_over_large_row_ends_it,
            a_late_commit_is_read_before_what_came_after_it,
            reads_among_random_late_commits_lose_nothing_and_keep_each_keys_order,
            rows_are_read_by_id,
            rows_are_read_by_key_within_a_range,
            every_read_answers_ids_ascending,
        ]);
        $crate::store_cases!($store, history: [
            a_canary_is_not_another_event_that_has_its_id,
            a_settle_for_an_event_whose_id_came_again_changes_nothing,
            an_event_whose_id_came_again_is_archived_beside_the_old_one,
            of_a_batch_the_events_that_are_still_themselves_are_settled,
            ids_that_went_back_are_noticed,
            ids_that_nobody_saw_may_come_again_and_are_read_at_once,
            a_replay_sends_what_fits_of_events_whose_ids_came_again,
        ]);
        $crate::store_cases!($store, maintenance: [
            a_marked_row_that_cannot_be_moved_keeps_no_others,
            folding_the_ledger_keeps_the_sums,
            old_minutes_of_the_ledger_become_one_sum,
            the_ledger_balances_while_it_is_folded,
            only_what_is_older_than_its_retention_is_removed,
            a_key_outlives_its_window_while_its_event_is_live,
            a_retention_without_end_removes_nothing,
            a_clean_up_from_several_relays_at_once_is_safe,
        ]);
        $crate::store_cases!($store, lookups: [
            statistics_add_up_from_the_ledger,
            the_oldest_age_is_that_of_the_oldest_live_event,
            a_live_row_deleted_by_hand_unbalances_the_ledger,
            a_row_exchanged_by_hand_unbalances_the_ledger,
            a_row_moved_in_time_by_hand_unbalances_the_ledger,
            a_stated_creation_time_is_recorded_in_its_own_window,
            events_are_listed_by_state_type_and_aggregate,
            pages_of_events_neither_overlap_nor_leave_gaps,
            injection_text_in_a_filter_finds_nothing_and_breaks_nothing,
            a_tampered_payload_no_longer_fits_its_hash,
        ]);
        $crate::store_cases!($store, dead_letters: [
            a_retry_keeps_the_identity_and_starts_afresh,
            a_retry_keeps_the_stored_hash_of_a_tampered_event,
            acting_on_a_resolved_or_unknown_entry_is_refused,
            a_resolution_is_taken_back_unless_the_event_was_sent_again,
            of_two_operators_at_once_the_second_is_refused,
            every_action_is_audited,
            dead_letters_are_filtered_and_counted,
            pages_of_dead_letters_neither_overlap_nor_leave_gaps,
            an_import_restores_only_what_is_neither_live_nor_known,
            an_import_refuses_what_no_table_could_hold,
            an_imported_letter_with_the_row_id_of_another_event_hides_none,
            an_import_takes_any_error_text,
            attempts_stay_readable_after_the_event_died,
        ]);
        $crate::store_cases!($store, round_trip: [
            a_dead_letter_holds_all_of_the_event,
            an_event_comes_back_whole_from_a_file,
            times_of_any_year_survive_an_import,
            a_marked_row_becomes_a_letter_with_all_of_the_event,
            a_retry_drops_a_time_to_expire_that_has_passed,
            a_time_to_expire_that_nobody_can_read_is_none,
            what_was_resolved_and_cleaned_up_is_not_imported_again,
            what_was_retried_and_cleaned_up_is_not_imported_again,
            what_was_delivered_after_all_is_not_imported,
        ]);
        $crate::store_cases!($store, search: [
            a_search_whose_time_is_over_says_where_to_go_on,
            lists_have_sizes_instead_of_payloads,
            a_full_page_is_complete,
            a_count_says_when_there_are_more,
            events_are_found_by_identity_request_error_and_time,
            an_identity_is_found_wherever_it_is,
            dead_letters_are_grouped_by_the_kind_of_their_error,
            upkeep_gives_dead_letters_the_fingerprint_that_they_lack,
            the_audit_trail_is_filtered_and_paged,
        ]);
        $crate::store_cases!($store, inbox: [
            an_event_is_new_once_for_each_consumer,
            a_rolled_back_transaction_received_nothing,
            a_batch_is_answered_in_order_and_a_repeat_in_it_is_ignored,
            of_two_consumers_at_once_with_the_same_event_one_waits_and_ignores_it,
            an_event_is_new_for_the_second_when_the_first_rolls_back,
            batches_of_the_same_events_at_once_apply_each_once,
            identities_that_only_look_alike_are_distinct,
            identities_that_no_column_holds_are_refused_before_anything_is_written,
            a_dead_message_is_a_letter_once_and_its_repeats_are_ignored,
            a_letter_is_resolved_or_asked_for_once_and_audited,
            old_identities_are_forgotten_in_chunks_and_the_ledger_still_balances,
            a_consumer_forgets_its_own_and_nobody_elses,
            an_identity_whose_letter_waits_is_not_forgotten,
            folding_keeps_the_consumers_ledgers,
            an_inbox_row_deleted_by_hand_unbalances_the_ledger,
        ]);
        $crate::store_cases!($store, locks: [
            a_lock_is_had_by_one_transaction_until_it_ends,
            a_lock_that_is_not_free_in_time_is_named_with_its_cure,
            different_names_do_not_wait_where_writers_are_concurrent,
            names_that_no_column_holds_are_refused,
            fifty_transactions_that_read_and_write_under_a_lock_lose_no_update,
        ]);
        $crate::store_cases!($store, jobs: [
            a_bulk_retry_sends_what_fits_its_filter_in_order,
            a_bulk_resolve_resolves_and_sends_nothing,
            a_job_that_nothing_fits_ends,
            a_job_of_a_dead_runner_is_taken_over_at_its_cursor,
            steps_of_two_runners_never_share_an_entry,
            a_stopped_job_goes_on_where_it_was,
            jobs_that_make_no_sense_are_refused,
            the_rest_follows_when_the_canary_is_delivered,
            a_canary_that_fails_stops_the_job,
            jobs_are_listed_by_outbox_and_state,
            a_request_key_makes_one_job_however_often_the_answer_is_lost,
            the_runner_works_a_job_through,
            a_replay_sends_archived_events_again,
            a_runner_finds_its_job_behind_many_others,
            a_step_of_large_events_is_cut_by_their_weight,
            a_second_replay_sends_each_event_once,
            a_replay_goes_into_the_outbox_that_it_names,
        ]);
        $crate::store_cases!($store, batches: [
            a_batch_is_added_to_the_rows_once_however_often_it_is_applied,
            a_large_batch_is_saved_as_a_whole_or_not_at_all,
            a_sum_that_overflows_undoes_the_whole_batch,
            a_row_whose_count_is_null_is_counted_from_zero,
            a_cancelled_batch_is_never_saved_and_a_saved_one_never_cancelled,
            only_a_dead_batch_is_imported_and_only_once,
            a_fenced_worker_saves_nothing_and_moves_nothing_to_the_dlq,
            a_batch_that_two_apply_at_once_is_saved_once,
            a_target_that_counts_cannot_be_added_to_is_named,
            old_batches_are_forgotten_but_no_dead_ones,
            entries_become_events_once,
        ]);
        $crate::store_cases!($store, pauses: [
            a_pause_holds_until_it_is_resumed,
            an_edited_dead_letter_is_sent_as_a_new_event,
            an_edit_that_cannot_be_sent_is_refused,
        ]);
        $crate::store_cases!($store, schema: [
            an_empty_database_needs_a_migration_and_is_ready_after_it,
            migrating_again_keeps_everything,
            migrations_may_run_at_once,
            tables_of_version_1_are_brought_up_to_date,
            two_outboxes_do_not_touch_each_other,
            a_missing_or_moved_outbox_is_named,
            tables_made_for_newer_programs_are_left_alone,
            the_printed_migration_makes_a_working_outbox,
            a_consumers_database_without_an_outbox_is_migrated,
        ]);
        $crate::store_cases!($store, ledger_property: [
            the_ledger_balances_through_random_walks,
        ]);
    };
}

/// Generates one test per case of broken networks, for a store that is reached over one.
#[macro_export]
macro_rules! store_faults {
    ($store:ident) => {
        $crate::store_cases!($store, faults: [
            a_settle_whose_answer_is_lost_can_be_repeated,
            a_failure_whose_answer_is_lost_is_spent_once,
            a_claim_whose_answer_is_lost_is_given_back,
            a_caller_that_leaves_an_answer_halfway_costs_the_next_one_nothing,
            an_append_whose_commit_answer_is_lost_is_recognised,
            an_append_cut_off_before_its_commit_never_happened,
            a_store_goes_on_after_an_outage,
            a_job_step_whose_commit_answer_is_lost_sends_nothing_twice,
            a_job_step_cut_off_before_its_commit_never_happened,
            a_silent_database_is_waited_for,
            an_event_received_with_a_lost_commit_answer_is_ignored_when_it_comes_again,
        ]);
    };
}

/// Generates one test per case of a theme.
#[doc(hidden)]
#[macro_export]
macro_rules! store_cases {
    ($store:ident, $theme:ident: [$($case:ident),* $(,)?]) => {
        mod $theme {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    let server = $crate::test_server!($store);
                    if let Some(db) = $crate::TestDb::open(server, name).await {
                        $crate::conformance::$theme::$case(db).await;
                    }
                }
            )*
        }
    };
}

/// Converts the name of a module to the server that its tests run on.
#[doc(hidden)]
#[macro_export]
macro_rules! test_server {
    (postgres) => {
        $crate::TestServer::Postgres
    };
    (postgres_next) => {
        $crate::TestServer::PostgresNext
    };
    (mariadb) => {
        $crate::TestServer::Mariadb
    };
    (mariadb_next) => {
        $crate::TestServer::MariadbNext
    };
    (mysql) => {
        $crate::TestServer::Mysql
    };
    (sqlite) => {
        $crate::TestServer::Sqlite
    };
}

#[cfg(test)]
mod tests {
    /// A case that is missing from the lists would never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("mod.rs");
        for source in [
            include_str!("append.rs"),
            include_str!("batches.rs"),
            include_str!("ledger_property.rs"),
            include_str!("callers.rs"),
            include_str!("claim.rs"),
            include_str!("dead_letters.rs"),
            include_str!("duplicates.rs"),
            include_str!("faults.rs"),
            include_str!("fencing.rs"),
            include_str!("inbox.rs"),
            include_str!("jobs.rs"),
            include_str!("lane_reads.rs"),
            include_str!("fan_out.rs"),
            include_str!("lanes.rs"),
            include_str!("locks.rs"),
            include_str!("lookups.rs"),
            include_str!("pauses.rs"),
            include_str!("recovery.rs"),
            include_str!("schema.rs"),
            include_str!("search.rs"),
            include_str!("settle.rs"),
            include_str!("maintenance.rs"),
        ] {
            let cases = source.lines().filter_map(|line| {
                line.strip_prefix("pub async fn ")?.strip_suffix("(db: TestDb) {")
            });
            let mut found = 0;
            for case in cases {
                assert!(list.contains(&format!(" {case},\n")), "{case} is in no list");
                found += 1;
            }
            assert!(found > 0);
        }
    }
}
