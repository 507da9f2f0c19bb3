"""Settings with which small Spark jobs take less time; they change no answer."""

QUICK = {
    # A process that lives for a minute is done sooner without the second compiler of Java, and a
    # query over a few rows without code that is generated and compiled for it.
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
    # A few rows need few tasks, and no plan that is made again after every stage.
    "spark__sql__shuffle__partitions": "2",
    "spark__sql__adaptive__enabled": "false",
}
