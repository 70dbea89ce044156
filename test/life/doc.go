// Package life tests how mounts come, go and live side by side: two mounts of
// one store at once, a daemon that is killed at a bad moment and the mount
// that follows it, ordinary users with fusermount3, other users under
// allow_other, and lines of fstab. What a single mount does when it starts
// badly or is stopped is in test/mounted.
package life
