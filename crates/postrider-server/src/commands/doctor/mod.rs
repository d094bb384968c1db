//! `postrider doctor`: finds obstacles between events and their destinations.

mod relays;
mod surroundings;

use postrider_command::{Failure, connect, output, without_password};
use postrider_store::{Database, Finding, SchemaState, StoreError, Verdict};

use crate::cli::DoctorArgs;
use crate::commands::Context;
use crate::config::Built;

pub(crate) async fn doctor(context: &Context, args: &DoctorArgs) -> Result<(), Failure> {
    let findings = examine(context, args).await?;
    if args.json {
        output::print_json(&findings)?;
    } else {
        let lines: String = findings.iter().map(line).collect();
        output::print(&lines)?;
    }
    let errors = findings.iter().filter(|finding| finding.verdict == Verdict::Error).count();
    match errors {
        0 => Ok(()),
        _ => Err(Failure::Partly(format!("{errors} of {} findings are errors", findings.len()))),
    }
}

fn line(finding: &Finding) -> String {
    let sign = match finding.verdict {
        Verdict::Ok => "ok     ",
        Verdict::Warning => "warning",
        Verdict::Error => "ERROR  ",
    };
    let fix = finding.fix.as_ref().map_or_else(String::new, |fix| format!("\n         {fix}"));
    format!("{sign}  {}: {}{fix}\n", finding.subject, finding.finding)
}

/// Examines the store first; checks that do not depend on it run in any case.
async fn examine(context: &Context, args: &DoctorArgs) -> Result<Vec<Finding>, Failure> {
    let config = context.load()?;
    let (url, connections_max) =
        (config.store.url.expose().to_owned(), config.store.connections_max);
    let built = config.build()?;
    let shown = format!("store {}", without_password(&url));
    let mut findings = Vec::new();
    match connect(&url, connections_max, false).await {
        Err(error) => {
            let fix = "check `url` in [store], and that the database runs and lets this user in";
            findings.push(Finding::error(&shown, error.to_string(), fix));
        }
        Ok(store) => {
            findings.push(Finding::ok(&shown, "can be reached"));
            if let Err(error) = look_at_store(store.as_ref(), &built, args, &mut findings).await {
                findings.push(broken_off(&shown, &error));
            }
        }
    }
    findings.push(surroundings::backup_folder(&built.relay.backup_folder));
    findings.extend(surroundings::sinks(&built.outboxes).await);
    Ok(findings)
}

async fn look_at_store(
    store: &dyn Database,
    built: &Built,
    args: &DoctorArgs,
    findings: &mut Vec<Finding>,
) -> Result<(), StoreError> {
    findings.push(store.find_pooler().await?);
    findings.push(surroundings::clocks(store).await?);
    let outboxes: Vec<_> = built.outboxes.iter().map(|o| o.outbox.clone()).collect();
    match store.schema_state(&outboxes).await? {
        SchemaState::Ready => findings.push(Finding::ok("tables", "there, and of this version")),
        SchemaState::NeedsMigration(what) => {
            findings.push(Finding::error("tables", what, "run `postrider migrate`"));
        }
        SchemaState::TooNew(what) => {
            findings.push(Finding::error("tables", what, "install a newer postrider"));
            return Ok(());
        }
    }
    findings.extend(store.diagnose(&built.specs(), args.long_transaction).await?);
    findings.extend(store.diagnose_adoptions(&built.specs()).await?);
    if findings.iter().any(|finding| finding.subject == "tables" && finding.fix.is_some()) {
        return Ok(());
    }
    findings.extend(relays::look(store, built).await?);
    Ok(())
}

/// Reports that the next check could not run.
fn broken_off(subject: &str, error: &StoreError) -> Finding {
    let fix = "fix what is named above first; then look again";
    Finding::error(subject, format!("stopped answering: {error}"), fix)
}
