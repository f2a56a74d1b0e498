from .elbow import knee as knee
from .external import accuracy as accuracy
from .external import adjusted_rand_score as adjusted_rand_score
from .external import normalized_mutual_info_score as normalized_mutual_info_score
from .external import purity as purity
from .internal import davies_bouldin as davies_bouldin
from .internal import energy as energy
from .internal import simplified_silhouette as simplified_silhouette
