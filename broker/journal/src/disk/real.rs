//! The operating system's file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use super::{Boot, Disk, DiskFile, Entry, Space};

/// The machine's own disk. Stateless: paths are used as given.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(
            OpenOptions::new().read(true).write(true).open(path)?,
        )))
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(
            OpenOptions::new().read(true).open(path)?,
        )))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is what the durable helpers stand on"
    )]
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is what the durable helpers stand on"
    )]
    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // A file unlinked between the listing and the look at it is simply not there.
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                is_dir: metadata.is_dir(),
                bytes: if metadata.is_dir() { 0 } else { metadata.len() },
            });
        }
        Ok(entries)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is what the durable helpers stand on"
    )]
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a directory is opened only to be synced"
    )]
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        let status = rustix::fs::statvfs(dir)?;
        Ok(Space {
            total: status.f_blocks.saturating_mul(status.f_frsize),
            available: status.f_bavail.saturating_mul(status.f_frsize),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.try_lock()?;
        Ok(Arc::new(RealFile(file)))
    }

    fn boot(&self) -> Option<Boot> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
    }
}

/// An open file of the operating system.
#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(into, position)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut position = position;
        for group in buffers.chunks(IO_VECTORS_MAX) {
            position += write_group(&self.0, group, position)?;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn byte_len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(
            &self.0,
            FallocateFlags::KEEP_SIZE,
            0,
            bytes,
        )?)
    }
}

/// Most buffers the kernel takes in one call (`IOV_MAX` on Linux).
const IO_VECTORS_MAX: usize = 1024;

/// Writes one call's worth of buffers. A short write is finished buffer by buffer.
fn write_group(file: &File, group: &[IoSlice<'_>], position: u64) -> io::Result<u64> {
    let total: u64 = group.iter().map(|buffer| buffer.len() as u64).sum();
    let written = loop {
        match rustix::io::pwritev(file, group, position) {
            Ok(written) => break written as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    if written < total {
        let mut skip = written;
        let mut at = position + written;
        for buffer in group {
            let length = buffer.len() as u64;
            if skip >= length {
                skip -= length;
                continue;
            }
            let rest = buffer
                .get(usize::try_from(skip).unwrap_or(0)..)
                .unwrap_or_default();
            file.write_all_at(rest, at)?;
            at += rest.len() as u64;
            skip = 0;
        }
    }
    Ok(total)
}
