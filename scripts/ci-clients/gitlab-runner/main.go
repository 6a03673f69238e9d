// Command gitlab-runner is GitLab's runner with one executor, custom: the runner's own packages, unchanged, behind a main
// function that lists what the tests of corral use. The runner's own main function also lists executors for Docker,
// Kubernetes and autoscaling, which pull in several hundred modules and some that the public module proxy does not serve.
package main

import (
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli"
	"gitlab.com/gitlab-org/gitlab-runner/commands"
	"gitlab.com/gitlab-org/gitlab-runner/commands/helpers"
	"gitlab.com/gitlab-org/gitlab-runner/common"
	"gitlab.com/gitlab-org/gitlab-runner/executors"
	"gitlab.com/gitlab-org/gitlab-runner/executors/custom"
	"gitlab.com/gitlab-org/gitlab-runner/log"
	"gitlab.com/gitlab-org/gitlab-runner/network"
	"gitlab.com/gitlab-org/gitlab-runner/router"

	_ "gitlab.com/gitlab-org/gitlab-runner/shells" // registers bash
)

func main() {
	providers := executors.NewProviderRegistry(map[string]common.ExecutorProvider{
		"custom": custom.NewProvider("gitlab-runner"), // the name by which scripts of jobs call the runner
	})
	requests := network.NewAPIRequestsCollector()
	certificates := commands.GetDefaultCertificateDirectory()
	client := router.NewClient(network.NewGitLabClient(
		network.WithAPIRequestsCollector(requests),
		network.WithCertificateDirectory(certificates),
		network.WithExecutorProviderFunc(providers.GetByName),
	), certificates, common.AppVersion.UserAgent())
	defer client.Shutdown()

	app := cli.NewApp()
	app.Name = filepath.Base(os.Args[0])
	app.Usage = "a GitLab Runner with the custom executor"
	app.Version = common.AppVersion.ShortLine()
	app.Commands = []cli.Command{
		commands.NewRunCommand(client, requests, providers),
		helpers.NewArtifactsDownloaderCommand(),
		helpers.NewArtifactsUploaderCommand(),
		helpers.NewCacheArchiverCommand(),
		helpers.NewCacheExtractorCommand(),
		helpers.NewCacheInitCommand(),
	}
	log.ConfigureLogging(app)
	if err := app.Run(os.Args); err != nil {
		logrus.Fatal(err) //nolint:forbidigo // as the runner's main function does
	}
}
