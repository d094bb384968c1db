//! `postrider migrate`

use postrider_command::{Failure, connect, output};

use crate::cli::MigrateArgs;
use crate::commands::Context;

pub(crate) async fn migrate(context: &Context, args: &MigrateArgs) -> Result<(), Failure> {
    let config = context.load()?;
    let (url, connections) = (config.store.url.expose().to_owned(), config.store.connections_max);
    let specs = match args.consumer {
        true => Vec::new(),
        false => config.build()?.specs(),
    };
    let store = connect(&url, connections, !args.print).await?;
    if args.print {
        let mut script = store.migration_sql(&specs);
        script.push_str(&store.adoption_sql(&specs).await?);
        return output::print(&script);
    }
    for line in store.migrate(&specs).await? {
        output::print(&format!("{line}\n"))?;
    }
    Ok(())
}
