module github.com/arrowdevice/arrowdevice

go 1.25.0

require github.com/stretchr/testify v1.12.1

require (
	github.com/apache/arrow-go/v18 v18.8.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
