from cgr.cli import main

main()
