//! The memory for the pieces of an answer. Later pieces use it again once the connection has sent
//! the earlier pieces. The kernel would have to clear new pages first, and these would not be in
//! the CPU's cache.

use hyper::body::Bytes;

/// The number of bytes after which a piece is given to the connection.
pub const CHUNK: usize = 64 << 10;
/// The capacity of a piece, so that a piece need not grow.
const PIECE: usize = CHUNK + 3 * CHUNK / 4;
/// The number of pieces that are remembered. A connection usually has about four unsent pieces.
const KEPT: usize = 6;

/// The pieces of one answer that were given to the connection last.
#[derive(Debug, Default)]
pub struct SentPieces(Vec<Bytes>);

impl SentPieces {
    /// Returns the bytes of `out`, which gets the memory of a sent piece, or new memory.
    pub fn take(&mut self, out: &mut Vec<u8>) -> Bytes {
        // Only the latest piece is still in the cache.
        let unused = self.0.iter().rposition(Bytes::is_unique);
        let next = unused.map_or_else(
            || Vec::with_capacity(PIECE),
            |at| {
                let mut piece = self.0.remove(at);
                // The conversion to `Bytes` would move the content.
                piece.clear();
                Vec::from(piece)
            },
        );
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        let piece = Bytes::from(std::mem::replace(out, next));
        self.0.push(piece.clone());
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_a_piece_has_been_sent() {
        let (mut sent, mut out) = (SentPieces::default(), Vec::with_capacity(PIECE));
        out.extend_from_slice(b"first");
        let first = sent.take(&mut out);
        let place = first.as_ptr();
        out.extend_from_slice(b"second");
        let second = sent.take(&mut out);
        assert_eq!(
            (&first[..], &second[..], out.len()),
            (&b"first"[..], &b"second"[..], 0)
        );
        assert_ne!(out.as_ptr(), place, "the first piece is on its way");
        drop(first);
        out.extend_from_slice(b"third");
        let third = sent.take(&mut out);
        assert_eq!(
            (&third[..], out.as_ptr(), out.len()),
            (&b"third"[..], place, 0)
        );
        assert_eq!(second, b"second"[..]);
        assert!(out.capacity() >= PIECE);
    }

    #[test]
    fn few_pieces_are_remembered() {
        let (mut sent, mut out) = (SentPieces::default(), vec![b'x']);
        let pieces: Vec<Bytes> = (0..20).map(|_| sent.take(&mut out)).collect();
        assert_eq!((pieces.len(), sent.0.len()), (20, KEPT));
    }
}
