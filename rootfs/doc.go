// Package rootfs describes the root file system of a jail as data.
//
// The root of a jail is an empty tmpfs. [Host] reads the running host and returns a [Tree]: the directories, links
// and small files to create in that tmpfs ([Tree.Write]) and the host directories to bind into it read-only
// ([Tree.Binds]). The rest are tables: the directories that are private to each job ([Private]), the paths that /proc
// hides ([MaskedProc]), the contents of /dev ([Devices], [DevLinks], [DevDirs], created by [WriteDev]), and the paths
// where no repository may be mounted ([Places], [CheckRepoPath]).
//
// Terms:
//
//	host      the tree of the machine, or a directory with the same structure
//	entry     a node that is created in the jail's root
//	bind      a host directory that is mounted read-only in the jail's root
//	private   a directory that is a separate tmpfs for each job
//	toolchain a host directory, outside the system directories, that jobs may read
//	repo      the one host directory that a job may change
//
// Rules:
//
//   - The host's /usr, /opt and, unless they are links into /usr, /bin, /sbin and /lib* are bound. Apart from these
//     and the toolchains nothing of the host is: no /home, /root, /var, /boot, /srv, /mnt, /sys.
//   - /etc is a copy: what a table of names with a reason each selects, and the configuration files of Debian's packages
//     that are as the packages have them. A file is copied if everybody on the host may read it, only root may change it,
//     it is small, and it contains no private key. Links are copied as links and never followed. [Tree.Skipped] lists
//     what was not copied of the table.
//   - Users, groups, host name and resolver configuration are generated: a job sees neither the host's name nor its
//     accounts.
//
// The package mounts nothing, follows no link in a tree that it reads or writes, changes no process-wide state
// (umask, working directory), starts no program, and imports no other package of corral.
package rootfs
