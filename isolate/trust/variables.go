package trust

// A Variable names a file of authorities to clients that do not look for one in the system's places.
type Variable struct{ Name, File, Reason string }

// Variables are what the jobs get unless they set it. A client belongs here only if it brings a store of its own, or looks at
// places of its own: the bundle and the authority in the system's places suffice for all others.
var Variables = []Variable{
	{"SSL_CERT_FILE", BundleFile, "programs with an OpenSSL of their own, such as conda's, which look at its place; uv, whose own store is compiled in"},
	{"REQUESTS_CA_BUNDLE", BundleFile, "Python's requests, and pip, poetry and conda with it, which bring certifi's store; the AWS CLI and boto read it, too"},
	{"NODE_EXTRA_CA_CERTS", AuthorityFile, "Node, npm, pnpm, yarn and Bun, whose own store is compiled in; it is extended"},
	{"DENO_CERT", AuthorityFile, "Deno, whose own store is compiled in; it is extended"},
	{"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", BundleFile, "gRPC for Python, Ruby, PHP and C++, which bring a store"},
}

// Env returns the variables of jobs that trust f, as NAME=value.
func (f *Files) Env() []string {
	if f == nil {
		return nil
	}
	env := make([]string, 0, len(Variables))
	for _, v := range Variables {
		env = append(env, v.Name+"="+v.File)
	}
	return env
}
