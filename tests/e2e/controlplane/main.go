// A Kubernetes control plane in one program, for tests: etcd inside, and upstream's own API server, scheduler and
// controllers. The first argument says what it is; flags follow as upstream has them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-controller-manager": controllers.NewControllerManagerCommand,
}

// runEtcd serves one member without TLS until it is told to end. What it holds need not outlive the machine.
func runEtcd(arguments []string) error {
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	data := flags.String("data-dir", "", "directory of the data")
	client := flags.String("client-url", "", "URL that clients use")
	peer := flags.String("peer-url", "", "URL of the member")
	sync := flags.Bool("fsync", false, "write through to the disk")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.UnsafeNoFsync = *data, "warn", !*sync
	for text, urls := range map[*string][]*[]url.URL{
		client: {&config.ListenClientUrls, &config.AdvertiseClientUrls},
		peer:   {&config.ListenPeerUrls, &config.AdvertisePeerUrls},
	} {
		parsed, err := url.Parse(*text)
		if err != nil || parsed.Host == "" {
			return fmt.Errorf("not a URL: %q", *text)
		}
		for _, where := range urls {
			*where = []url.URL{*parsed}
		}
	}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	member, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer member.Close()
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	select {
	case <-told.Done():
		return nil
	case err = <-member.Err():
		return err
	}
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-scheduler|kube-controller-manager FLAGS")
		os.Exit(2)
	}
	name := os.Args[1]
	os.Args = os.Args[1:]
	if name == "etcd" {
		if err := runEtcd(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			os.Exit(1)
		}
		return
	}
	program, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "controlplane: no such program: %q\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(program()))
}
