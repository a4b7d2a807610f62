//! The commit of a change: the store gets the rows of the change, and then the index applies it.

use std::io;
#[cfg(test)]
use std::sync::atomic::Ordering;

use twinprobe_store::{self as store, Connection, Durable, Ticket};

use super::{ChangeTurn, Windows};
use crate::body::draft::Body;
use crate::body::stored::StoredWindow;
use crate::index::index::IndexChange;
use crate::rows::{self, Baseline, Form, WindowRow};

/// A change that was handed to the store.
#[must_use]
pub struct Submitted {
    turn: ChangeTurn,
    change: IndexChange,
    /// The ticket for the change; `None` if there is nothing to be changed.
    ticket: Option<Ticket>,
    body: Option<Body>,
}

impl std::fmt::Debug for Submitted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Submitted")
            .field("change", &self.change)
            .finish_non_exhaustive()
    }
}

/// The rows that a change writes and deletes in one transaction.
struct ChangeRows {
    series: i64,
    name: String,
    /// The state of the series; `None` if its row stays.
    state: Option<Vec<u8>>,
    new: Option<WindowRow>,
    gone: Vec<i64>,
    forms: Vec<WindowRow>,
    baseline: Option<((u64, u64), Baseline)>,
    baselines_gone: Vec<i64>,
    /// The content of the new window or baseline; `None` if a file holds it.
    content: Option<Vec<u8>>,
}

impl ChangeRows {
    fn write(&self, connection: &Connection) -> store::Result<()> {
        let content = self.content.as_deref();
        if let Some(state) = &self.state {
            rows::save_series(connection, self.series, &self.name, state)?;
        }
        self.gone
            .iter()
            .try_for_each(|&id| rows::delete_window(connection, id))?;
        self.baselines_gone
            .iter()
            .try_for_each(|&id| rows::delete_baseline(connection, id))?;
        self.forms
            .iter()
            .try_for_each(|row| row.update(connection))?;
        if let Some(row) = &self.new {
            row.insert(connection, content)?;
        }
        if let Some((key, baseline)) = &self.baseline {
            rows::insert_baseline(connection, self.series, *key, baseline, content)?;
        }
        Ok(())
    }
}

impl Windows {
    /// Hands a change to the store. `body` is that of the new window or baseline.
    pub fn submit(
        &self,
        turn: ChangeTurn,
        change: IndexChange,
        mut body: Option<Body>,
        durable: Durable,
    ) -> Submitted {
        if change.is_empty() && body.is_none() {
            return Submitted {
                turn,
                change,
                ticket: None,
                body,
            };
        }
        let state = (change.saves || !*turn).then(|| change.state.encode());
        let content = body.as_mut().and_then(|body| body.content.take());
        let rows = self.rows_of(&change, state, content);
        let frees = rows.new.is_none() && rows.baseline.is_none();
        #[cfg(test)]
        let is_full = self.is_full.load(Ordering::Relaxed);
        let ticket = self.database.submit(
            durable,
            frees,
            Box::new(move |connection| {
                #[cfg(test)]
                if is_full {
                    return Err(store::disk_full());
                }
                rows.write(connection)
            }),
        );
        Submitted {
            turn,
            change,
            ticket: Some(ticket),
            body,
        }
    }

    /// Returns the rows of a change. `content` is that of the new window or baseline.
    fn rows_of(
        &self,
        change: &IndexChange,
        state: Option<Vec<u8>>,
        content: Option<Vec<u8>>,
    ) -> ChangeRows {
        let row = |window: &StoredWindow, form| WindowRow::new(self.series, window, form);
        let forms = change.forms.iter().map(|(window, form)| row(window, *form));
        let index = self.index.lock();
        let baselines_gone = change
            .baselines_gone
            .iter()
            .filter_map(|key| index.baselines.get(key));
        let baselines_gone: Vec<i64> = baselines_gone.map(|baseline| baseline.id).collect();
        drop(index);
        ChangeRows {
            series: self.series,
            name: self.name.clone(),
            state,
            new: change.new.as_ref().map(|window| row(window, Form::Closed)),
            gone: change.gone.iter().map(|window| window.id).collect(),
            forms: forms.collect(),
            baseline: change.baseline.clone(),
            baselines_gone,
            content,
        }
    }

    /// Waits until a change is in the store, and shows it. After an error nothing has changed.
    pub fn finish(&self, submitted: Submitted) -> io::Result<()> {
        let Submitted {
            mut turn,
            change,
            ticket,
            body,
        } = submitted;
        let Some(ticket) = ticket else { return Ok(()) };
        self.database.wait(&ticket)?;
        *turn = true;
        let files = change
            .gone
            .iter()
            .filter(|window| window.is_file)
            .map(|window| window.id);
        let mut files: Vec<i64> = files.collect();
        let mut index = self.index.lock();
        let baselines = change
            .baselines_gone
            .iter()
            .filter_map(|key| index.baselines.get(key));
        files.extend(
            baselines
                .filter(|baseline| baseline.is_file)
                .map(|baseline| baseline.id),
        );
        index.apply(change);
        drop(index);
        body.into_iter().for_each(Body::named);
        files.into_iter().for_each(|id| self.bodies.remove(id));
        Ok(())
    }

    /// Makes a change without a body, and logs the reason of a failure.
    pub fn change(
        &self,
        turn: ChangeTurn,
        change: IndexChange,
        durable: Durable,
    ) -> io::Result<()> {
        if self.index.lock().removed {
            return Ok(());
        }
        self.finish(self.submit(turn, change, None, durable)).inspect_err(|error| {
            tracing::error!(probe = self.name, %error, "a change of windows could not be written");
        })
    }
}
