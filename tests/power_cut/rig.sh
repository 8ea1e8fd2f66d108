#!/bin/sh
# Runs a command on an ext4 file system and logs every write and every flush of its block device,
# in order.
#
#     rig.sh DIR MOUNT-OPTIONS COMMAND [ARGUMENT...]
#
# Needs root, qemu-storage-daemon (Debian: qemu-utils), FUSE and a loop device. The file system is in
# DIR/disk.img; if that is missing, the script creates an empty one (with MKFS_OPTIONS). MOUNT-OPTIONS
# are those of ext4, such as `noauto_da_alloc,commit=1`, or `rw` for none. The file system is mounted
# at DIR/mnt. The script leaves:
#
#     DIR/base.img   the disk before
#     DIR/disk.img   the disk after
#     DIR/log.img    the writes in between, in the format of dm-log-writes (see README.md)
#
# The exit code is the command's. No mount, loop device or daemon remains after any end.
set -eu
cd "$1"
options=$2
shift 2

if [ ! -e disk.img ]; then
    # The last page does not belong to the file system.
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
# SIGKILL, because the daemon may not react to SIGTERM. By then all writes are in its files.
trap 'kill -KILL $daemon 2>/dev/null; wait $daemon 2>/dev/null || true; umount -l export.img 2>/dev/null || true' EXIT
trap 'exit 1' INT TERM
until [ "$(stat -c %s export.img)" = "$size" ]; do
    kill -0 $daemon
    sleep 0.01
done

# For ext4 the loop device writes zeros by punching holes, or as zeros if the disk refuses that (as
# from QEMU 10). A disk that accepts it without effect would show old bytes in new files.
page=$((size - 4096))
printf x | dd of=export.img bs=4096 oflag=seek_bytes seek=$page conv=notrunc status=none
if fallocate --punch-hole --offset $page --length 4096 export.img 2>/dev/null; then
    cmp --bytes=4096 --ignore-initial=$page:0 export.img /dev/zero
fi

# The mount is in a namespace without the daemon: if all are killed at once, the daemon dies first,
# and the rest of the mount gets errors instead of waiting for the daemon.
# shellcheck disable=SC2016 # for the inner shell
unshare --mount sh -euc '
    mount -o "loop,$1" export.img mnt
    shift
    "$@"
    umount mnt
' rig "$options" "$@"
