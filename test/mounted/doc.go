// Package mounted tests the mount as its users see it: real system calls and
// real tools on a store served by a subprocess, with other processes beside
// them that read the mount and write the store. Every test here starts from a
// copy of a golden store, ends with its mount, and is checked by the harness
// for what it leaves behind.
package mounted
