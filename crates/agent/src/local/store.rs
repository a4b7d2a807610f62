//! The commands for the store: they report its faults, and export its windows as files. They change
//! nothing, and a daemon may use the store at the same time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use twinprobe_ebpf_common::Format;
use twinprobe_exporter::document_encoder;
use twinprobe_store::Database;
use twinprobe_windows::{Form, StoredWindow, WindowReader, WindowStore, Windows};

use crate::engine::window::delivery::Delivery;
use crate::local::check::Check;

/// Reads the store of a state directory.
#[derive(Debug, Args)]
pub struct StoreCommands {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Write the stored windows as files, and the probes' records
    ///
    /// The files are `TO/PROBE/INSTANCE/SEQ.json`, and `TO/PROBE/probe.json` with the
    /// configuration. A window that is damaged is written as it is, as `SEQ.damaged`. Nothing in
    /// the state directory is changed; a daemon may be running.
    Export(Export),
}

#[derive(Debug, Args)]
struct Export {
    /// The daemon's state directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/twinprobe")]
    state_dir: PathBuf,
    /// The directory to write to, which must not have files of another export
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Only the windows of this probe
    #[arg(long, value_name = "NAME")]
    probe: Option<String>,
    /// Format of the files
    #[arg(short, long, value_name = "FORMAT", default_value = "json", value_parser = formats())]
    output: Format,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name))
        .try_map(|name| Format::from_name(&name).ok_or("unknown format"))
}

impl StoreCommands {
    pub fn run(self) -> Result<()> {
        let StoreCommand::Export(export) = self.command;
        export.run()
    }
}

fn open(state_dir: &Path) -> Result<(Arc<Database>, WindowStore)> {
    let database = Database::open_to_read(state_dir)?;
    let windows = WindowStore::open(state_dir, &database, u64::MAX, 0)
        .context("the windows can't be read")?;
    Ok((database, windows))
}

impl Export {
    fn run(self) -> Result<()> {
        let (database, store) = open(&self.state_dir)?;
        let (mut written, mut unread) = (0_usize, 0_usize);
        for windows in store.all() {
            if self
                .probe
                .as_ref()
                .is_some_and(|probe| *probe != windows.name)
            {
                continue;
            }
            let stored = windows
                .stored()
                .into_iter()
                .filter(|(_, form)| *form != Form::BuiltOn);
            for (window, form) in stored {
                match self.window(&windows, &window, form) {
                    Ok(()) => written += 1,
                    Err(error) => {
                        unread += 1;
                        eprintln!(
                            "twinprobe: window {} of probe {}: {error:#}",
                            window.seq(),
                            windows.name
                        );
                    }
                }
            }
        }
        let records = database.read(|connection| {
            let sql = "SELECT name, record FROM probes UNION SELECT name, record FROM expired";
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
            })?;
            rows.collect::<twinprobe_store::Result<Vec<_>>>()
        })?;
        for (name, record) in records {
            if self.probe.as_ref().is_none_or(|probe| *probe == name) {
                write(&self.to.join(&name).join("probe.json"), &record)?;
            }
        }
        println!("{written} windows in {}", self.to.display());
        ensure!(unread == 0, "{unread} windows could not be read");
        Ok(())
    }

    fn window(&self, windows: &Arc<Windows>, window: &StoredWindow, form: Form) -> Result<()> {
        // Windows of earlier versions have no instance.
        let instance = if window.instance.is_empty() {
            "unknown"
        } else {
            &window.instance
        };
        let directory = self.to.join(&windows.name).join(instance);
        let seq = window.seq();
        let read = if form == Form::Damaged {
            None
        } else {
            window.examine().ok()
        };
        match read {
            Some(reader) => {
                let document = render(windows, &Arc::new(reader), self.output)?;
                write(
                    &directory.join(format!("{seq}.{}", self.output.name())),
                    &document,
                )
            }
            None => write(
                &directory.join(format!("{seq}.damaged")),
                &windows.body(window)?,
            ),
        }
    }
}

/// Returns the document of a window, as the daemon answers it.
fn render(windows: &Arc<Windows>, reader: &Arc<WindowReader>, format: Format) -> Result<Vec<u8>> {
    let delivery = Delivery::of_reader(windows, reader, Arc::default());
    let mut out = Vec::new();
    let mut encoder = document_encoder(
        format,
        &delivery.head(),
        Arc::clone(&delivery.context),
        &mut out,
    );
    encoder.skipped_before(delivery.skipped_before);
    delivery
        .parts
        .iter()
        .for_each(|part| encoder.add_metric(&part.metric));
    while let Some(table) = encoder.next_table(&mut out) {
        let mut chunk = 0;
        while let Some(rows) = reader.chunk(table, chunk)? {
            encoder.rows(&rows, &mut out);
            while encoder.more(&mut out) {}
            chunk += 1;
        }
    }
    encoder.finish(&mut out);
    Ok(out)
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, content))
        .with_context(|| path.display().to_string())
}

/// Looks for faults of the store of a state directory, for `twinprobe doctor`.
pub fn examine(state_dir: &Path) -> Check {
    let advice = "save the readable windows with `twinprobe store export`; if the daemon does not start, \
        move the file away";
    match examine_store(state_dir) {
        Ok(Examined {
            wrong,
            windows,
            bytes,
        }) if wrong.is_empty() => Check::ok(
            "store",
            format!("{windows} windows, {bytes} bytes, all undamaged"),
        ),
        Ok(Examined { wrong, .. }) => Check::failed("store", wrong.join("; "), advice),
        Err(error) => Check::failed("store", format!("{error:#}"), advice),
    }
}

struct Examined {
    wrong: Vec<String>,
    windows: usize,
    bytes: u64,
}

fn examine_store(state_dir: &Path) -> Result<Examined> {
    let (database, store) = open(state_dir)?;
    let mut examined = Examined {
        wrong: database.check()?,
        windows: 0,
        bytes: 0,
    };
    for windows in store.all() {
        for (window, form) in windows.stored() {
            examined.windows += 1;
            examined.bytes += window.entry.bytes;
            let wrong = match window.examine() {
                _ if form == Form::Damaged => "it was found damaged before".to_owned(),
                Ok(_) => continue,
                Err(error) => error.to_string(),
            };
            examined.wrong.push(format!(
                "window {} of probe {}: {wrong}",
                window.seq(),
                windows.name
            ));
        }
    }
    Ok(examined)
}
