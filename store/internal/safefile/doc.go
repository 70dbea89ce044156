// Package safefile reaches files below a directory that others may write to,
// and makes new files durable while they are streamed.
//
// A path is looked up once, by the kernel, beneath its root and through no
// symlink; what follows is done in the directory that was found, by its
// descriptor. A rename or a symlink put in the way at the same moment makes the
// look-up fail and leads nowhere else. The descriptor is used through
// /proc/self/fd, so that all calls still go through disk.FS, where tests can
// fail them.
package safefile
