# %% [markdown]
# # A tour of sparkdml
# From data to a pipeline, a grid search, plots, and a model that pyspark.ml loads. Run it cell by cell in an editor
# that knows `# %%`, or as a whole: `spark-submit docs/tour.py`. It uses the handwritten digits in `data/`.

# %%
import tempfile
from pathlib import Path

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StandardScaler
from pyspark.ml.functions import array_to_vector
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import functions as F

import sparkdml
from sparkdml.classification import LogisticRegression, LogisticRegressionModel  # was: pyspark.ml.classification

spark = sparkdml.session().getOrCreate()  # or any session that you have
DATA = Path("data")

# %% [markdown]
# ## Data
# Vectors, arrays of numbers, or several numeric columns: all of them can be features. Pipelines want vectors.


# %%
def read(name: str):
    pixels = array_to_vector("pixels").alias("pixels")
    return spark.read.parquet(str(DATA / f"{name}.parquet")).select(F.col("label").cast("double"), pixels)


train, test = read("digits_train").cache(), read("digits_test").cache()

# %% [markdown]
# ## A pipeline
# Stages of Spark and ours side by side.

# %%
scaler = StandardScaler(inputCol="pixels", outputCol="features")
classifier = LogisticRegression(regParam=1e-3, maxIter=200)
pipeline = Pipeline(stages=[scaler, classifier])
model = pipeline.fit(train)
accuracy = MulticlassClassificationEvaluator(metricName="accuracy")
print(f"test accuracy {accuracy.evaluate(model.transform(test)):.4f}")

# %% [markdown]
# ## What the fit cost
# `report` tells which solver and placement ran and why, and what every round cost. The summary is Spark's own, and
# more.

# %%
learned = model.stages[-1]
print(learned.report.solver, "|", learned.report.placement)
print({phase: round(seconds, 3) for phase, seconds in learned.report.seconds.items()})
print(f"training accuracy {learned.summary.accuracy:.4f} after {learned.summary.totalIterations} iterations")
print(learned.summary.history.select(["round", "objective", "gradient_norm"]).slice(0, 3).to_pydict())

# %% [markdown]
# ## A grid search
# The rows of a fold are prepared once for all maps.

# %%
features = scaler.fit(train).transform(train).select("features", "label").cache()
grid = (
    ParamGridBuilder()
    .addGrid(classifier.regParam, [1e-3, 1e-2])
    .addGrid(classifier.elasticNetParam, [0.0, 0.5])
    .build()
)
search = CrossValidator(estimator=classifier, estimatorParamMaps=grid, evaluator=accuracy, numFolds=2, seed=1)
found = search.fit(features)
for params, metric in zip(grid, found.avgMetrics, strict=True):
    print({param.name: value for param, value in params.items()}, f"{metric:.4f}")

# %% [markdown]
# ## Early stopping, class weights, a warm start
# Rows where `held_back` is true are not trained on; they tell when to stop.

# %%
marked = features.withColumn("held_back", F.rand(seed=5) < 0.2).cache()
careful = LogisticRegression(
    tol=0.0, solver="l-bfgs", classWeight="balanced", validationIndicatorCol="held_back", patience=3
)
stopped = careful.fit(marked)
print(stopped.report.stop.message)
again = LogisticRegression(regParam=1e-3, maxIter=200).setInitialModel(learned).fit(features)
print(f"{again.report.rounds} rounds from where another fit ended, {learned.report.rounds} from the start")

# %% [markdown]
# ## Plots
# Objective and validation loss by round and by second (the extra `report` installs matplotlib).

# %%
try:
    figure = stopped.summary.plot()
except ImportError as error:
    print(error)
else:
    folder = Path(tempfile.mkdtemp())
    figure.savefig(folder / "fit.svg")
    print("drawn:", (folder / "fit.svg").stat().st_size > 0)
figure = None

# %% [markdown]
# ## Save, and load with pyspark.ml
# Models are Spark's own: nothing of sparkdml is needed to load them and score with them.

# %%
with tempfile.TemporaryDirectory() as place:
    model.write().overwrite().save(f"{place}/pipeline")
    loaded = PipelineModel.load(f"{place}/pipeline")
    print(type(loaded.stages[-1]).__module__, f"{accuracy.evaluate(loaded.transform(test)):.4f}")
    learned.write().overwrite().save(f"{place}/model")
    print(LogisticRegressionModel.load(f"{place}/model").hasSummary)

# %%
for frame in (train, test, features, marked):
    frame.unpersist()
