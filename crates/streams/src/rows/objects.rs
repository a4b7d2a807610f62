//! Places that keep files under names: a directory, a bucket.

use futures_util::future::BoxFuture;

use crate::receiver::SendError;

/// A place for files. A path has parts with `/` between them.
pub trait ObjectPlace: Send {
    /// Returns the names of the files in a directory that begin with `prefix`; none if there is no
    /// such directory.
    fn list<'a>(
        &'a mut self,
        directory: &'a str,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, SendError>>;

    /// Stores a file, whole and for good, in place of one of the same path.
    fn put<'a>(
        &'a mut self,
        path: &'a str,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), SendError>>;

    /// The address of a path, for people.
    fn address(&self, path: &str) -> String;
}
