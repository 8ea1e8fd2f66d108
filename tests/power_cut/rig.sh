#!/bin/sh
# Runs a command on an ext4 file system and logs every write and every flush of its block device, in order.
#
#     rig.sh DIR MOUNT-OPTIONS COMMAND [ARGUMENT...]
#
# Needs root, qemu-storage-daemon (Debian: qemu-utils), FUSE and a loop device. The file system is in DIR/disk.img;
# where that is missing an empty one is made (MKFS_OPTIONS are added). MOUNT-OPTIONS are those of ext4, such as
# `noauto_da_alloc,commit=1`, or `rw` for none. The command finds the file system at DIR/mnt. It leaves:
#
#     DIR/base.img   the disk before
#     DIR/disk.img   the disk after
#     DIR/log.img    what lies between, as dm-log-writes has it (README.md tells how)
#
# The result is the command's. However it ends, no mount, loop device or daemon stays.
set -eu
cd "$1"
options=$2
shift 2

if [ ! -e disk.img ]; then
    # The last page is not the file system's.
    truncate -s 65540K disk.img
    # shellcheck disable=SC2086 # several options
    mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 ${MKFS_OPTIONS:-} disk.img 64M
fi
cp --sparse=always disk.img base.img
size=$(stat -c %s disk.img)
rm -f log.img export.img
: >log.img
: >export.img
mkdir -p mnt

qemu-storage-daemon \
    --blockdev driver=file,node-name=disk,filename=disk.img,discard=unmap \
    --blockdev driver=file,node-name=log,filename=log.img \
    --blockdev driver=blklogwrites,node-name=logged,file=disk,log=log,log-sector-size=512,discard=unmap \
    --export "type=fuse,id=export,node-name=logged,mountpoint=$PWD/export.img,writable=on" &
daemon=$!
# Not asked to end, for it may sleep through that. Everything written is in its files by then.
trap 'kill -KILL $daemon 2>/dev/null; wait $daemon 2>/dev/null || true; umount -l export.img 2>/dev/null || true' EXIT
trap 'exit 1' INT TERM
until [ "$(stat -c %s export.img)" = "$size" ]; do
    kill -0 $daemon
    sleep 0.01
done

# ext4 has the loop device write zeros by punching holes. A disk that says yes to that and does nothing would show old
# bytes in new files.
page=$((size - 4096))
printf x | dd of=export.img bs=4096 oflag=seek_bytes seek=$page conv=notrunc status=none
fallocate --punch-hole --offset $page --length 4096 export.img
cmp --bytes=4096 --ignore-initial=$page:0 export.img /dev/zero

# The mount is in a namespace that the daemon is not in: should all be killed at once, the daemon dies first, and
# what is left of the mount gets errors instead of waiting for it.
# shellcheck disable=SC2016 # for the inner shell
unshare --mount sh -euc '
    mount -o "loop,$1" export.img mnt
    shift
    "$@"
    umount mnt
' rig "$options" "$@"
