//! An open file of a simulated disk.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::MutexGuard;

use super::crash::SECTOR;
use super::node::{Change, NodeId};
use super::{CallKind, Fault, Inner, SimDisk};
use crate::disk::DiskFile;

/// An open file of a simulated disk.
pub(super) struct SimFile {
    pub(super) disk: SimDisk,
    pub(super) id: NodeId,
    pub(super) path: PathBuf,
    pub(super) epoch: u64,
    pub(super) writable: bool,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SimFile")
            .field("path", &self.path)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl SimFile {
    fn enter(&self, kind: CallKind) -> io::Result<(MutexGuard<'_, Inner>, Option<Fault>)> {
        if kind.changes() && kind != CallKind::Sync && !self.writable {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        self.disk.enter(kind, &self.path, Some(self.epoch))
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let (inner, _) = self.enter(CallKind::Read)?;
        let bytes = inner.node(self.id)?.bytes()?;
        let from = usize::try_from(position).map_or(bytes.len(), |at| at.min(bytes.len()));
        let available = bytes.get(from..).unwrap_or_default();
        let count = available.len().min(into.len());
        if let (Some(to), Some(source)) = (into.get_mut(..count), available.get(..count)) {
            to.copy_from_slice(source);
        }
        Ok(count)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let (mut inner, fault) = self.enter(CallKind::Write)?;
        let mut bytes: Vec<u8> = buffers
            .iter()
            .flat_map(|buffer| buffer.iter().copied())
            .collect();
        let room = inner.capacity.saturating_sub(inner.used());
        let grows = (position + bytes.len() as u64)
            .saturating_sub(inner.node(self.id)?.bytes()?.len() as u64);
        let error = match fault {
            Some(fault) => Some(fault.error()),
            None if grows > room => Some(Fault::Full.error()),
            None => None,
        };
        if error.is_some() {
            let mut kept = inner.random.below(bytes.len() as u64 + 1).min(room);
            // What replaces bytes that are there already does so by whole sectors; only a growing file ends anywhere.
            let length = inner.node(self.id)?.bytes()?.len() as u64;
            if position + kept < length {
                kept = ((position + kept) / SECTOR as u64 * SECTOR as u64).saturating_sub(position);
            }
            bytes.truncate(usize::try_from(kept).unwrap_or(0));
        }
        inner
            .node_mut(self.id)?
            .change(Change::Write { position, bytes })?;
        error.map_or(Ok(()), Err)
    }

    fn sync_data(&self) -> io::Result<()> {
        let (mut inner, fault) = self.enter(CallKind::Sync)?;
        match fault {
            None => inner.node_mut(self.id)?.sync(),
            Some(Fault::Crash) => {
                if inner.random.coin() {
                    inner.node_mut(self.id)?.sync();
                }
                return Err(Fault::Crash.error());
            }
            Some(fault) => {
                inner.node_mut(self.id)?.sync_failed();
                return Err(fault.error());
            }
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let (mut inner, fault) = self.enter(CallKind::SetLen)?;
        match fault {
            None => inner.node_mut(self.id)?.change(Change::SetLen(bytes)),
            Some(Fault::Crash) => {
                if inner.random.coin() {
                    inner.node_mut(self.id)?.change(Change::SetLen(bytes))?;
                }
                Err(Fault::Crash.error())
            }
            Some(fault) => Err(fault.error()),
        }
    }

    fn byte_len(&self) -> io::Result<u64> {
        let (inner, _) = self.enter(CallKind::Read)?;
        Ok(inner.node(self.id)?.bytes()?.len() as u64)
    }

    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        // Reserved space is not modelled: it changes no length and no byte.
        let (_inner, fault) = self.enter(CallKind::Reserve)?;
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }
}
