module corral/bench

go 1.26.5

require (
	corral v0.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/go-git/gcfg/v2 v2.0.2 // indirect
	github.com/seccomp/libseccomp-golang v0.12.0 // indirect
)

replace corral => ../
